//! Reads of jobs, shards, experiments and results; of data sources, profiles and metadata.

mod named;

mod buckets;

use std::sync::Arc;

use kernel::typed::Typed;
use kernel::{App, Key, Object, Result, Store};

use crate::model::experiment::{Experiment, experiment_key};
use crate::model::inventory::Member;
use crate::model::job::{BulkJob, MEMBERS, METADATA, PLAN, RESULTS, ResultLine, job_key};
use crate::model::plan::Plan;
use crate::model::tenant::Tenant;

pub use buckets::{Day, day, days};
pub use named::{all, imported, named};

/// A job that was not deleted.
pub async fn job(store: &dyn Store, id: &str) -> Result<Option<(Arc<Object>, Typed<BulkJob>)>> {
    let found = store.object(&job_key(id)).await?.filter(|object| object.deleted_at.is_none());
    found.map(|object| Ok((object.clone(), Typed::from_object(&object)?))).transpose()
}

/// The experiments that exist among these keys, in their order.
pub async fn experiments(store: &dyn Store, keys: &[Key]) -> Result<Vec<Object>> {
    let mut found = store.get(keys).await?;
    found.retain(|object| object.deleted_at.is_none());
    Ok(found)
}

/// The experiment of this name that a tenant has.
pub async fn experiment_named(
    store: &dyn Store,
    tenant: Tenant<'_>,
    name: &str,
) -> Result<Option<Arc<Object>>> {
    let found = store.object(&experiment_key(tenant, name)).await?;
    Ok(found.filter(|object| object.deleted_at.is_none()))
}

pub fn experiment(object: &Object) -> Result<Typed<Experiment>> {
    Typed::from_object(object)
}

/// What discovery found for a job; none before that.
pub async fn plan(app: &App, job: &str) -> Result<Option<Plan>> {
    read(app, &job_key(job), PLAN).await
}

/// What discovery found for a job, as the wire shows it; none before that.
pub async fn metadata(app: &App, job: &str) -> Result<Option<serde_json::Value>> {
    read(app, &job_key(job), METADATA).await
}

/// The containers of a shard.
pub async fn members(app: &App, shard: &Key) -> Result<Option<Vec<Member>>> {
    read(app, shard, MEMBERS).await
}

async fn read<T: serde::de::DeserializeOwned>(
    app: &App,
    key: &Key,
    name: &str,
) -> Result<Option<T>> {
    let Some(blob) = app.blobs.get(app.store.as_ref(), key, name).await? else { return Ok(None) };
    let parsed = serde_json::from_slice(&blob.data);
    let damaged = |error| kernel::Error::internal(format!("{key} {name} is damaged"), error);
    parsed.map(Some).map_err(damaged)
}

/// The results of a shard, or those that an experiment was recommended alone.
pub struct Results {
    data: Vec<u8>,
    /// Where each line begins; the last number is the end of the last line.
    starts: Vec<usize>,
}

impl Results {
    pub fn new(data: Vec<u8>) -> Results {
        let ends = data.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let starts = [0].into_iter().chain(ends.map(|(at, _)| at + 1)).collect();
        Results { data, starts }
    }

    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The JSON of a line.
    pub fn text(&self, line: usize) -> Option<&[u8]> {
        let (start, end) = (*self.starts.get(line)?, *self.starts.get(line + 1)?);
        self.data.get(start..end - 1)
    }

    pub fn line(&self, line: usize) -> Result<Option<ResultLine<'_>>> {
        // The line of a result that is not kept any more is empty.
        let Some(text) = self.text(line).filter(|text| !text.is_empty()) else { return Ok(None) };
        let parsed = serde_json::from_slice(text);
        let damaged = |error| kernel::Error::internal("a result is damaged", error);
        parsed.map(Some).map_err(damaged)
    }
}

/// None before the shard is read, and after the results were removed.
pub async fn results(app: &App, of: &Key) -> Result<Option<Results>> {
    let blob = app.blobs.get(app.store.as_ref(), of, RESULTS).await?;
    Ok(blob.map(|blob| Results::new(blob.data)))
}
