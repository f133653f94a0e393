//! Reads of uploaded results.

use std::collections::BTreeMap;

use kernel::{App, Error, Key, Result, files};

use crate::model::bucket::{BUCKETS, Bucket};

/// The buckets of one day, by their ends.
#[derive(Debug, Default)]
pub struct Day {
    /// Of the blob; 0 if there is none.
    pub version: i64,
    pub buckets: Vec<Bucket>,
}

/// The blobs of an experiment that have buckets, with their sizes, by their days.
pub async fn days(app: &App, experiment: &Key) -> Result<BTreeMap<String, u64>> {
    let blobs = app.store.blobs(experiment).await?.into_iter();
    let days = blobs.filter(|blob| blob.name.starts_with(BUCKETS));
    Ok(days.map(|blob| (blob.name, blob.size.unsigned_abs())).collect())
}

/// The day that this blob of an experiment has; empty if there is no blob.
pub async fn day(app: &App, experiment: &Key, blob: &str) -> Result<Day> {
    let found = app.blobs.get(app.store.as_ref(), experiment, blob).await?;
    let Some(found) = found else { return Ok(Day::default()) };
    let version = found.version;
    // A day of one-minute intervals takes tens of milliseconds.
    let buckets = files::blocking(move || serde_json::from_slice(&found.data)).await;
    let damaged = |error| Error::internal(format!("{experiment} {blob} is damaged"), error);
    Ok(Day { version, buckets: buckets.map_err(damaged)? })
}
