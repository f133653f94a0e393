//! Uploads results of experiments.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use kernel::blob::BlobWrite;
use kernel::change::Wake;
use kernel::command::{AuditFields, Command, CommandContext, Decided};
use kernel::identity::Action;
use kernel::typed::Typed;
use kernel::{Change, Error, Json, Key, Object, Result, files};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::Config;
use crate::model::bucket::{Bucket, blob_name};
use crate::model::experiment::{EXPERIMENT, Experiment, experiment_key};
use crate::model::tenant::Tenant;
use crate::model::upload::{Record, Refused, Upload};
use crate::store;

/// Of one day of an experiment, before compression.
const DAY_BYTES_MAX: usize = 4 << 20;
/// Of all days of an experiment: 28 containers in intervals of 15 minutes.
const BYTES_MAX: u64 = 64 << 20;
/// Of which an experiment has results at a time. Recommendations read 16 of them.
const DAYS_MAX: usize = 100;

/// Uploads results, at most `advisor.results_max` of them. An interval that is there is refused,
/// and those that are not are saved.
pub struct UploadResults {
    pub config: Config,
}

/// The records as they were sent.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Records(Vec<Value>);

/// How many records there were, and those that were not saved.
#[derive(Debug, Serialize, Deserialize)]
pub struct UploadedResults {
    pub records: usize,
    pub refused: Vec<Value>,
}

#[async_trait]
impl Command for UploadResults {
    const NAME: &'static str = "results.upload";
    const ACTION: Action = Action::Write;
    type Body = Records;
    type Reply = UploadedResults;

    async fn decide(
        &self,
        cx: &CommandContext<'_>,
        Records(all): Records,
    ) -> Result<Decided<UploadedResults>> {
        let (records, limit) = (all.len(), self.config.results_max);
        if records > limit {
            return Err(Error::invalid(
                "",
                format!(
                    "At present, the system does not support bulk entries exceeding {limit} in \
                     quantity!"
                ),
            ));
        }
        let (uploads, mut refused) = read(all);
        let (org, tenant) = (&cx.principal.org, Tenant::of(cx.principal));
        let experiments = experiments(cx, &uploads).await?;
        let mut by_experiment: BTreeMap<Key, Vec<(Record, Upload)>> = BTreeMap::new();
        for (record, upload) in uploads {
            let key = experiment_key(tenant, &upload.experiment);
            by_experiment.entry(key).or_default().push((record, upload));
        }
        let mut changes = Vec::new();
        for (key, uploads) in by_experiment {
            match experiments.get(&key) {
                Some((object, experiment)) => {
                    let change = self.upload(cx, object, experiment, uploads, &mut refused).await?;
                    changes.extend(change);
                }
                None => refused.extend(uploads.into_iter().map(|(record, upload)| {
                    let name = &upload.experiment;
                    record.refuse(400, format!("Not Found: experiment_name does not exist: {name}"))
                })),
            }
        }
        let status = if refused.is_empty() { 201 } else { 400 };
        refused.sort_by_key(Refused::index);
        let refused: Vec<Value> = refused.iter().map(Refused::to_json).collect();
        let after = json!({ "saved": records - refused.len(), "refused": refused.len() });
        let target = match &changes[..] {
            [one] => one.expects.first().map(|(key, _)| key.to_string()),
            _ => None,
        };
        let audit = AuditFields {
            target: target.unwrap_or_else(|| EXPERIMENT.to_owned()),
            org: org.clone(),
            after: Json::encode(&after),
            ..AuditFields::default()
        };
        let mut decided = Decided::new(status, UploadedResults { records, refused }, audit);
        decided.changes = changes;
        Ok(decided)
    }
}

/// The records that can be read, and those that cannot.
fn read(all: Vec<Value>) -> (Vec<(Record, Upload)>, Vec<Refused>) {
    let (mut uploads, mut refused) = (Vec::new(), Vec::new());
    for (index, value) in all.into_iter().enumerate() {
        let (record, upload) = Record::read(index, value);
        match upload {
            Ok(upload) => uploads.push((record, upload)),
            Err(invalid) => refused.push(record.refuse(400, invalid.to_string())),
        }
    }
    (uploads, refused)
}

type Found = (Object, Typed<Experiment>);

async fn experiments(
    cx: &CommandContext<'_>,
    uploads: &[(Record, Upload)],
) -> Result<HashMap<Key, Found>> {
    let tenant = Tenant::of(cx.principal);
    let keys = uploads.iter().map(|(_, upload)| experiment_key(tenant, &upload.experiment));
    let keys: Vec<Key> = keys.collect::<HashSet<_>>().into_iter().collect();
    let found = store::experiments(cx.app.store.as_ref(), &keys).await?.into_iter();
    let visible = found.filter(|object| kernel::http::can_see(cx.principal, object));
    let decoded = visible.map(|object| {
        let experiment = store::experiment(&object)?;
        Ok((object.key.clone(), (object, experiment)))
    });
    decoded.collect()
}

impl UploadResults {
    /// The change that adds results to an experiment; none if all of them are refused.
    async fn upload(
        &self,
        cx: &CommandContext<'_>,
        object: &Object,
        experiment: &Typed<Experiment>,
        uploads: Vec<(Record, Upload)>,
        refused: &mut Vec<Refused>,
    ) -> Result<Option<Change>> {
        let mut days: BTreeMap<String, Vec<(Record, Bucket)>> = BTreeMap::new();
        for (record, upload) in uploads {
            match upload.check(&experiment.spec) {
                Ok(()) => {
                    let day = blob_name(upload.bucket.end_ms);
                    days.entry(day).or_default().push((record, upload.bucket));
                }
                Err(problem) => refused.push(record.refuse(400, problem)),
            }
        }
        let mut existing = store::days(cx.app, &object.key).await?;
        let mut blobs = Vec::new();
        for (blob, added) in days {
            let is_full = existing.len() >= DAYS_MAX && !existing.contains_key(&blob);
            if is_full || existing.values().sum::<u64>() >= BYTES_MAX {
                let problem = format!(
                    "interval_end_time: there are results of {} days already, the most that an \
                     experiment can have; they are removed after {} days",
                    existing.len(),
                    self.config.results_days
                );
                refused.extend(added.into_iter().map(|(it, _)| it.refuse(400, problem.as_str())));
                continue;
            }
            let written = add(cx, &object.key, &blob, added, refused).await?;
            existing.entry(blob).or_default();
            blobs.extend(written);
        }
        if blobs.is_empty() {
            return Ok(None);
        }
        // They are removed when nothing reads them any more.
        let keep = Duration::from_secs(self.config.results_days.saturating_mul(24 * 3600));
        let wakes = vec![Wake::for_object(object, cx.now.plus(keep))];
        // Not into one that is deleted at the same time.
        let expects = vec![(object.key.clone(), object.revision)];
        Ok(Some(Change { blobs, wakes, expects, ..Change::default() }))
    }
}

/// Adds buckets to a day.
async fn add(
    cx: &CommandContext<'_>,
    key: &Key,
    blob: &str,
    added: Vec<(Record, Bucket)>,
    refused: &mut Vec<Refused>,
) -> Result<Vec<BlobWrite>> {
    let store::Day { version, buckets } = store::day(cx.app, key, blob).await?;
    let mut all: BTreeMap<i64, Bucket> =
        buckets.into_iter().map(|bucket| (bucket.end_ms, bucket)).collect();
    let mut saved = Vec::new();
    for (record, bucket) in added {
        if all.contains_key(&bucket.end_ms) {
            refused.push(record.refuse(409, "An entry for this record already exists!"));
            continue;
        }
        all.insert(bucket.end_ms, bucket);
        saved.push(record);
    }
    if saved.is_empty() {
        return Ok(Vec::new());
    }
    let (app, owner, name) = (cx.app.clone(), key.clone(), blob.to_owned());
    let written = files::blocking(move || {
        let all: Vec<&Bucket> = all.values().collect();
        let data = serde_json::to_vec(&all).map_err(|e| Error::internal("encoding results", e))?;
        if data.len() > DAY_BYTES_MAX {
            return Ok(None);
        }
        app.blobs.put(&owner, &name, Some(version), &data, false).map(Some)
    });
    let Some(written) = written.await? else {
        let problem = format!(
            "the results of this day have more than {DAY_BYTES_MAX} bytes; upload fewer \
             containers or longer intervals"
        );
        refused.extend(saved.into_iter().map(|record| record.refuse(400, problem.as_str())));
        return Ok(Vec::new());
    };
    Ok(written)
}
