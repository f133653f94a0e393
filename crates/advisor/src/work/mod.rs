//! What the advisor does: reads data sources and recommends.

mod accelerators;
mod bulk_shard;
pub(crate) mod discovery;
mod experiment;
mod job;
mod lines;
mod measure;
mod notify;
mod profiles;
mod reader;
mod recommended;
mod shard;
pub mod survey;

pub use bulk_shard::ShardWorker;
pub use experiment::ExperimentWorker;
pub use job::JobWorker;

use std::collections::VecDeque;
use std::sync::Arc;

use kernel::change::Wake;
use kernel::driver::Attempt;
use kernel::query::PAGE_MAX;
use kernel::{App, Error, ObjectQuery, Result};

use crate::config::Config;
use crate::decide::maths::recommend::Options;
use crate::metrics::Calls;
use crate::model::experiment_name::NameTemplate;
use crate::model::job::{SHARD, ShardPhase};
use crate::ports::prometheus::QueryError;
use crate::ports::prometheus::sources::Sources;
use crate::ports::webhook::Webhooks;

/// What the workers share.
pub struct Advisor {
    pub app: App,
    pub config: Config,
    pub names: NameTemplate,
    pub sources: Arc<Sources>,
    pub webhooks: Arc<Webhooks>,
    pub calls: Arc<Calls>,
}

impl Advisor {
    /// How recommendations are computed.
    fn options(&self) -> Options {
        Options { plots: self.config.plots, ..Options::default() }
    }

    /// Whether a data source that did not answer this attempt may answer the next one.
    fn tries_again(&self, attempt: &Attempt, error: &QueryError) -> bool {
        error.problem.is_transient() && attempt.failures < self.config.source_retries_max
    }

    /// The places for shards that read a data source at the same time.
    fn reads_counter(&self, org: &str, datasource: &str) -> String {
        let org = self.readers_of(org, datasource).unwrap_or_default();
        format!("advisor/reads/{org}/{datasource}")
    }

    /// The organisation that reads a data source; none for those of the configuration, which all read.
    fn readers_of<'a>(&self, org: &'a str, datasource: &str) -> Option<&'a str> {
        (!self.config.datasources.contains_key(datasource)).then_some(org)
    }

    /// Wakes the shards that have waited longest for a place at a data source, as many as there are
    /// places.
    async fn wake_waiting_shards(
        &self,
        attempt: &Attempt,
        org: &str,
        datasource: &str,
    ) -> Result<Vec<Wake>> {
        let mut query = ObjectQuery {
            org: self.readers_of(org, datasource).map(str::to_owned),
            kind: Some(SHARD.into()),
            phase: Some(ShardPhase::Waiting.label().into()),
            labels: vec![("datasource".to_owned(), datasource.to_owned())],
            limit: PAGE_MAX,
            ..ObjectQuery::default()
        };
        let places = usize::try_from(self.config.shards_max).unwrap_or(usize::MAX);
        let mut oldest = VecDeque::new();
        loop {
            // The newest come first.
            let page = attempt.store().find(&query).await?;
            for shard in page.objects {
                if oldest.len() == places {
                    oldest.pop_front();
                }
                oldest.push_back(Wake::for_object(&shard, attempt.now()));
            }
            query.after = page.next;
            if query.after.is_none() {
                return Ok(oldest.into());
            }
        }
    }
}

/// Ends work whose result is no longer wanted.
async fn cancellable<T>(
    attempt: &Attempt,
    work: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    let done = attempt.cancelled().run_until_cancelled(work).await;
    done.unwrap_or_else(|| Err(Error::Transient("the attempt was cancelled".into())))
}
