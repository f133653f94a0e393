//! Makes the recommendations that are requested for single experiments, and removes uploaded results
//! that are too old.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::blob::{BlobInfo, BlobWrite};
use kernel::change::{AuditDraft, Refusal};
use kernel::driver::{AnyWorker, Attempt, Requeue};
use kernel::typed::Typed;
use kernel::{Change, Error, Key, Object, Result, Timestamp, files};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::job::jiff_of;
use super::measure::measure;
use super::{Advisor, lines, recommended};
use crate::decide::material::{figures, sum};
use crate::decide::uploaded::{self, WINDOW_MS};
use crate::model::bucket::{BUCKETS, blob_names};
use crate::model::experiment::{EXPERIMENT, Experiment, HISTORY_MAX, REQUESTS_MAX, Request};
use crate::model::job::{RESULTS, ResultLine, ResultRef};
use crate::model::recommendation::Recommendation;
use crate::model::tenant::Tenant;
use crate::model::wire::experiment::element;
use crate::store::{self, Results};

const AT_ONCE: Requeue = Requeue::After(Duration::ZERO);
/// A data source that is slower than this fails the request.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// Experiments that are read at the same time by a process, for each data source. The slots of the
/// driver are for others, too.
const READERS_MAX: usize = 8;
/// When an experiment looks again whether there is a place for it.
const PLACE_POLL: Duration = Duration::from_secs(1);
/// How often an answer is written again because a job wrote the experiment at the same time.
const TRIES: usize = 10;
/// The most results of its own that an experiment can refer to, and one that is being written.
const LINES_MAX: usize = HISTORY_MAX + 2 + REQUESTS_MAX + 1;

pub struct ExperimentWorker {
    advisor: Arc<Advisor>,
    /// The places for readers of each data source, and those for readers of results.
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
}

type Outcome = std::result::Result<Vec<Recommendation>, String>;

#[async_trait]
impl AnyWorker for ExperimentWorker {
    fn kind(&self) -> &str {
        EXPERIMENT
    }

    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)> {
        let object = &attempt.object;
        if object.deleted_at.is_some() {
            return Ok((Change::default(), Requeue::Never));
        }
        let experiment = store::experiment(object)?;
        let waiting = experiment.spec.pending(&experiment.status);
        let Some(first) = waiting.first() else {
            return self.purge(attempt, &experiment.spec).await;
        };
        let Ok(_place) = self.places_of(&experiment).try_acquire_owned() else {
            return Ok((Change::default(), Requeue::After(PLACE_POLL)));
        };
        // Requests of the same window have the same answer.
        let same = |other: &&Request| (other.end_ms, &other.job) == (first.end_ms, &first.job);
        let requests: Vec<Request> = waiting.iter().take_while(same).cloned().collect();
        let now = attempt.now();
        let end_ms = first.end_ms.unwrap_or(now.millis());
        let outcome = tokio::select! {
            outcome = self.recommend(&experiment, end_ms) => outcome?,
            () = unwanted(attempt) => {
                return Err(Error::Transient("the attempt was cancelled".into()));
            }
        };
        self.answer(attempt, &experiment.spec, &requests, outcome, end_ms).await?;
        // There may be more requests, or old results.
        Ok((Change::default(), AT_ONCE))
    }
}

/// Resolves when the attempt is to end early. Not because of further requests: they would never let
/// it end.
async fn unwanted(attempt: &Attempt) {
    attempt.cancelled().cancelled().await;
    let found = attempt.store().object(&attempt.object.key).await;
    let is_newer = |object: &Object| {
        object.deleted_at.is_none() && object.generation > attempt.object.generation
    };
    if found.is_ok_and(|found| found.is_some_and(|object| is_newer(&object))) {
        pending::<()>().await;
    }
}

impl ExperimentWorker {
    pub fn new(advisor: Arc<Advisor>) -> ExperimentWorker {
        ExperimentWorker { advisor, places: Mutex::default() }
    }

    fn places_of(&self, experiment: &Typed<Experiment>) -> Arc<Semaphore> {
        let datasource = experiment.spec.datasource.as_deref().unwrap_or_default();
        let of = self.advisor.reads_counter(&experiment.org, datasource);
        let mut places = self.places.lock();
        places.entry(of).or_insert_with(|| Arc::new(Semaphore::new(READERS_MAX))).clone()
    }

    /// What is recommended as of this time. The error is of the store, and passes.
    async fn recommend(&self, experiment: &Typed<Experiment>, end_ms: i64) -> Result<Outcome> {
        let spec = &experiment.spec;
        if spec.is_remote() {
            return match self.recommend_uploaded(experiment, end_ms).await {
                Err(error @ Error::Internal { .. }) => Ok(Err(error.with_causes())),
                done => done.map(Ok),
            };
        }
        let advisor = &self.advisor;
        let tenant = Tenant { org: &experiment.org, owner: &experiment.owner };
        let measured = measure(advisor, tenant, spec, jiff_of(Timestamp(end_ms)));
        Ok(tokio::time::timeout(READ_TIMEOUT, measured).await.unwrap_or_else(|_| {
            Err(format!("the data source was not read within {} s", READ_TIMEOUT.as_secs()))
        }))
    }

    /// Reads the uploaded results day by day.
    async fn recommend_uploaded(
        &self,
        experiment: &Typed<Experiment>,
        end_ms: i64,
    ) -> Result<Vec<Recommendation>> {
        let key = experiment.key();
        let window = end_ms - WINDOW_MS..=end_ms;
        let mut results = uploaded::Results::of(&experiment.spec, self.advisor.options());
        for blob in blob_names(*window.start(), *window.end()) {
            let day = store::day(&self.advisor.app, &key, &blob).await?;
            let inside = day.buckets.iter().filter(|bucket| window.contains(&bucket.end_ms));
            inside.for_each(|bucket| results.add(bucket));
        }
        Ok(files::blocking(move || results.recommend()).await)
    }

    /// Writes the result, and that it answers these requests, in one change.
    async fn answer(
        &self,
        attempt: &Attempt,
        experiment: &Experiment,
        requests: &[Request],
        outcome: Outcome,
        end_ms: i64,
    ) -> Result<()> {
        let key = &attempt.object.key;
        let recommended = match &outcome {
            Ok(recommendations) => {
                let element = element(experiment, recommendations);
                Some(element.map_err(|error| Error::internal("encoding a result", error))?)
            }
            Err(_) => None,
        };
        for _ in 0..TRIES {
            let object = attempt.store().object(key).await?;
            let Some(object) = object.filter(|object| object.deleted_at.is_none()) else {
                return Ok(());
            };
            let before = store::experiment(&object)?;
            let now = attempt.now();
            let line = ResultLine {
                experiment: Experiment { requests: Vec::new(), ..before.spec.clone() },
                existing: true,
                member: before.spec.members().into_iter().next(),
                at: now,
                recommendation: recommended.as_deref(),
                figures: outcome.as_ref().ok().map(|all| sum(all.iter().map(figures))),
                error: outcome.as_ref().err().cloned(),
            };
            let used =
                before.status.results().chain(before.status.answers.iter().map(|it| &it.result));
            let used: Vec<u32> = used.filter(|it| it.of == *key).map(|it| it.line).collect();
            let free = (0..LINES_MAX as u32).find(|line| !used.contains(line)).unwrap_or_default();
            let result = ResultRef { of: key.clone(), line: free, end_ms };
            let blobs = self.with_line(key, &used, free, &line).await?;
            let write = recommended::answer(&object, &line, result, requests, now)?;
            let settles = write.object.observed == write.object.generation;
            let audit = Some(AuditDraft {
                actor: "mainstay".into(),
                action: format!("{EXPERIMENT}.{}", write.event),
                target: key.to_string(),
                org: object.org.clone(),
                outcome: "done".into(),
                after: write.object.status.clone(),
                ..AuditDraft::default()
            });
            let change = Change { blobs, audit, settles, hop: !settles, ..Change::from(write) };
            match attempt.record(change).await {
                Err(Error::Refused(Refusal::Stale { key: stale, .. })) if stale == *key => {}
                done => return done,
            }
        }
        Err(Error::Transient("the experiment is written by others all the time".into()))
    }

    /// The blob of the experiment's own results with one more line. Of the others, those that are
    /// used stay as they are; the rest are empty.
    async fn with_line(
        &self,
        key: &Key,
        used: &[u32],
        number: u32,
        line: &ResultLine<'_>,
    ) -> Result<Vec<BlobWrite>> {
        let before =
            self.advisor.app.blobs.get(self.advisor.app.store.as_ref(), key, RESULTS).await?;
        let (version, before) = match before {
            Some(blob) => (blob.version, Results::new(blob.data)),
            None => (0, Results::new(Vec::new())),
        };
        let mut data = Vec::new();
        for other in 0..LINES_MAX as u32 {
            if other == number {
                lines::append(&mut data, line)?;
                continue;
            }
            if used.contains(&other) {
                data.extend_from_slice(before.text(other as usize).unwrap_or_default());
            }
            data.push(b'\n');
        }
        self.advisor.app.blobs.put(key, RESULTS, Some(version), &data, false)
    }

    /// Removes results that were uploaded too long ago, and sleeps until the next will be.
    async fn purge(&self, attempt: &Attempt, experiment: &Experiment) -> Result<(Change, Requeue)> {
        if !experiment.is_remote() {
            return Ok((Change::default(), Requeue::Never));
        }
        let (key, now) = (&attempt.object.key, attempt.now());
        let keep = Duration::from_secs(self.advisor.config.results_days.saturating_mul(24 * 3600));
        let (mut blobs, mut next) = (Vec::new(), None);
        for BlobInfo { name, version, at, .. } in attempt.store().blobs(key).await? {
            let until = at.plus(keep);
            if !name.starts_with(BUCKETS) {
                continue;
            }
            if until <= now {
                // The write is refused if there are new results since; without it, they would go.
                blobs.extend(self.advisor.app.blobs.put(
                    key,
                    &name,
                    Some(version),
                    b"[]",
                    false,
                )?);
                blobs.push(BlobWrite::Remove { key: key.clone(), name: Some(name) });
            } else {
                next = Some(next.map_or(until, |next: Timestamp| next.min(until)));
            }
        }
        let requeue = next.map_or(Requeue::Never, Requeue::At);
        Ok((Change { blobs, ..Change::default() }, requeue))
    }
}
