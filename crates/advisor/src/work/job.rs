//! Brings bulk jobs to their end: finds what is to be read, splits it into shards, counts those that
//! are done. Each attempt does one thing and writes it, so that a crash repeats at most one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::{AuditDraft, Refusal, Release, Wake, Write};
use kernel::driver::{AnyWorker, Attempt, Requeue};
use kernel::typed::Typed;
use kernel::{Change, Class, Draft, Error, Labels, Object, ObjectQuery, Result, Timestamp};

use super::discovery::{Discovered, Discovery};
use super::profiles::{self, Metrics};
use super::reader::Reader;
use super::shard::Stop;
use super::{Advisor, cancellable};
use crate::decide::job::{Limits, Next, failing, next, shard_keys};
use crate::model::experiment::PERFORMANCE_PROFILE;
use crate::model::job::{
    BulkJob, BulkShard, FAILING, JOB, JobNotice, JobPhase, JobStatus, MEMBERS, METADATA, PLAN,
    ShardPhase, ShardStatus, shard_key,
};
use crate::model::plan::Plan;
use crate::model::tenant::Tenant;
use crate::ports::prometheus::Problem;
use crate::store;

/// When a job looks again whether there is a place for it, if nobody wakes it before.
const QUEUED_POLL: Duration = Duration::from_secs(60);
const AT_ONCE: Requeue = Requeue::After(Duration::ZERO);

pub struct JobWorker(pub Arc<Advisor>);

type Shards = Vec<(usize, Object, Typed<BulkShard>)>;
pub(super) type Job = Typed<BulkJob>;

#[async_trait]
impl AnyWorker for JobWorker {
    fn kind(&self) -> &str {
        JOB
    }

    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)> {
        let object = &attempt.object;
        if object.deleted_at.is_some() {
            return Ok((Change::default(), Requeue::Never));
        }
        let job = Job::from_object(object)?;
        let shards = self.shards(attempt, &job).await?;
        let decoded: Vec<_> = shards.iter().map(|(n, _, shard)| (*n, shard.clone())).collect();
        match next(&job, &decoded, self.limits(), attempt.now()) {
            Next::Enter => self.enter(attempt, &job).await,
            Next::Discover => cancellable(attempt, self.discover(attempt, &job)).await,
            Next::Create(missing) => self.create(attempt, &job, &missing).await,
            Next::Stop(numbers) => self.stop(attempt, &job, &shards, &numbers).await,
            Next::Report(status) => {
                let write = draft(object, job.phase, &status).report("progress", attempt.now());
                Ok((Change { hop: true, ..Change::from(write) }, AT_ONCE))
            }
            Next::Fail(status) => Ok(fail(attempt, &job, &status)),
            Next::Notify(notification) => self.notify(attempt, &job, &notification).await,
            Next::End(phase, status) => self.end(attempt, &job, phase, &status).await,
            Next::Remove(numbers) => self.remove(attempt, &job, &shards, &numbers).await,
            Next::Wait(until) => Ok((Change::default(), Requeue::At(until))),
        }
    }
}

impl JobWorker {
    fn limits(&self) -> Limits {
        Limits {
            timeout: Duration::from_secs(self.0.config.job_timeout_s),
            keep: Duration::from_secs(self.0.config.jobs_days.saturating_mul(24 * 3600)),
        }
    }

    async fn shards(&self, attempt: &Attempt, job: &Job) -> Result<Shards> {
        let keys = shard_keys(job);
        let mut found = Shards::new();
        for object in attempt.store().get(&keys).await? {
            let number = object.key.id().rsplit('.').next().and_then(|text| text.parse().ok());
            if let (Some(number), None) = (number, object.deleted_at) {
                let shard = Typed::from_object(&object)?;
                found.push((number, object, shard));
            }
        }
        found.sort_by_key(|(number, _, _)| *number);
        Ok(found)
    }

    /// Takes a place among the jobs of the organisation, or waits for one.
    async fn enter(&self, attempt: &Attempt, job: &Job) -> Result<(Change, Requeue)> {
        let status = JobStatus { entered_at: Some(attempt.now()), ..job.status.clone() };
        let write = draft(&attempt.object, JobPhase::Discovering, &status);
        let write = write.report(JobPhase::Discovering.label(), attempt.now());
        let takes = vec![job.take(jobs_counter(&job.org), 1, self.0.config.jobs_max)];
        match attempt.record(Change { takes, hop: true, ..Change::from(write) }).await {
            Ok(()) => Ok((Change::default(), AT_ONCE)),
            Err(Error::Refused(Refusal::Limit { .. })) => {
                Ok((Change::default(), Requeue::After(QUEUED_POLL)))
            }
            Err(error) => Err(error),
        }
    }

    async fn discover(&self, attempt: &Attempt, job: &Job) -> Result<(Change, Requeue)> {
        let fails = |notice| Ok(fail(attempt, job, &failing(&job.status, notice)));
        let request = &job.spec.request;
        let name = &request.datasource;
        let source = match self.0.sources.find(&job.org, name).await {
            Ok(Some(source)) => source,
            Ok(None) => {
                let why = format!("Datasource not registered with Kruize. ({name})");
                return fails(JobNotice::error(400, 400, why));
            }
            Err(error) if error.class() == Class::Transient => return Err(error),
            // Such as a user's, whose address may not be called any more.
            Err(error) => return fails(notice_of(&Stop::Other(error))),
        };
        let (store, tenant) = (attempt.store(), Tenant::of_object(job));
        let profile = &request.metadata_profile;
        let Some(metadata) = profiles::metadata(store, tenant, profile).await? else {
            let why = format!(
                "Metadata profile not found. (Metadata profile name either does not exist or is \
                 not valid: {profile})"
            );
            return fails(JobNotice::error(400, 400, why));
        };
        let metrics = profiles::metrics(store, tenant, PERFORMANCE_PROFILE).await?;
        let reader = Reader::new(&source.client, &source.gate);
        let containers_max = self.0.config.containers_max;
        let discovery = Discovery {
            reader: &reader,
            bulk: request,
            names: &self.0.names,
            metadata: &metadata,
            metrics: &metrics.unwrap_or(Metrics::BuiltIn),
            measurement_min: self.0.options().measurement_min,
            now: jiff_of(attempt.now()),
            answered: &|| {},
            found: &|_| {},
            containers_max,
        };
        let discovered = match discovery.run().await {
            Ok(discovered) => discovered,
            Err(Stop::Source(error)) if self.0.tries_again(attempt, &error) => {
                return Err(Error::Transient(error.why));
            }
            Err(stop) => return fails(notice_of(&stop)),
        };
        let found = discovered.plan.members.len();
        if found > containers_max {
            let why = format!(
                "The number of experiments exceeds the defined limit. \
                 ({found} were found; advisor.containers_max is {containers_max})"
            );
            return fails(JobNotice::info(400, 400, why));
        }
        self.plan(attempt, job, discovered)
    }

    /// Writes down what is to be read, in one change with the phase.
    fn plan(
        &self,
        attempt: &Attempt,
        job: &Job,
        discovered: Discovered,
    ) -> Result<(Change, Requeue)> {
        let Discovered { inventory, plan, end, with_recording_rules, notices } = discovered;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let notice = |message: String| match message.as_str() {
            super::discovery::NOTHING_TO_DO => JobNotice::info(200, 400, message),
            _ => JobNotice::warning(200, 200, message),
        };
        let status = JobStatus {
            total: count(plan.members.len()),
            shards: count(plan.shards.len()),
            window_end_ms: Some(end.as_millisecond()),
            with_recording_rules,
            notices: notices.into_iter().map(notice).collect(),
            ..job.status.clone()
        };
        let key = &attempt.object.key;
        let blobs = &self.0.app.blobs;
        let metadata = inventory.metadata(&job.spec.request.datasource);
        let mut written = blobs.put(key, METADATA, None, &encode(&metadata)?, false)?;
        written.extend(blobs.put(key, PLAN, None, &encode(&plan)?, false)?);
        let write = draft(&attempt.object, JobPhase::Running, &status);
        let write = write.report(JobPhase::Running.label(), attempt.now());
        Ok((Change { blobs: written, hop: true, ..Change::from(write) }, AT_ONCE))
    }

    /// Creates shards. Those that exist since another attempt are left as they are.
    async fn create(
        &self,
        attempt: &Attempt,
        job: &Job,
        missing: &[usize],
    ) -> Result<(Change, Requeue)> {
        let lost = || Error::internal("a bulk job", "its plan is missing");
        let Plan { members, shards } = store::plan(&self.0.app, &job.id).await?.ok_or_else(lost)?;
        let now = attempt.now();
        let mut changes = Vec::with_capacity(missing.len());
        for number in missing {
            let shard = shards.get(*number).ok_or_else(lost)?;
            let key = shard_key(&job.id, *number);
            let own: Vec<_> = shard.members(&members).cloned().collect();
            let spec = BulkShard {
                job: job.id.clone(),
                attribution: shard.attribution,
                narrow: shard.narrow,
            };
            let labels = Labels::from([
                ("job".to_owned(), job.id.clone()),
                ("datasource".to_owned(), job.spec.request.datasource.clone()),
            ]);
            let draft = Draft::new(key.clone(), &job.org, &job.owner, &job.name, now);
            let draft = draft.labels(labels).phase(&ShardPhase::Waiting).spec(&spec);
            let write = draft.status(&ShardStatus::default()).create("created");
            let wakes = vec![Wake::for_object(&write.object, now)];
            let blobs = self.0.app.blobs.put(&key, MEMBERS, None, &encode(&own)?, false)?;
            changes.push(Change { wakes, blobs, ..Change::from(write) });
        }
        for verdict in attempt.store().commit_all(changes, now).await? {
            match verdict {
                Ok(_) | Err(Refusal::Exists(_)) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok((Change::default(), AT_ONCE))
    }

    /// Ends shards that have not ended: their attempts notice the newer generation.
    async fn stop(
        &self,
        attempt: &Attempt,
        job: &Job,
        shards: &Shards,
        numbers: &[usize],
    ) -> Result<(Change, Requeue)> {
        let now = attempt.now();
        let counter = self.0.reads_counter(&job.org, &job.spec.request.datasource);
        let running = shards.iter().filter(|(number, _, _)| numbers.contains(number));
        let stop = |(_, object, shard): &(usize, Object, Typed<BulkShard>)| {
            let draft = Draft::<BulkShard>::of(object).phase(&ShardPhase::Cancelled);
            let releases = shard.releases([counter.clone()]);
            Change { releases, ..Change::from(draft.respec("cancelled", now)) }
        };
        for verdict in attempt.store().commit_all(running.map(stop).collect(), now).await? {
            match verdict {
                // One that has just ended is seen by the next attempt.
                Ok(_) | Err(Refusal::Stale { .. }) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok((Change::default(), AT_ONCE))
    }

    /// The one change that ends a job.
    async fn end(
        &self,
        attempt: &Attempt,
        job: &Job,
        phase: JobPhase,
        status: &JobStatus,
    ) -> Result<(Change, Requeue)> {
        let (object, now) = (&attempt.object, attempt.now());
        let write = draft(object, phase, status).transition(phase.label(), now);
        let releases = vec![release(object, jobs_counter(&object.org))];
        let waiting = self.waiting(attempt, &object.org).await?;
        let mut wakes: Vec<Wake> = waiting.iter().map(|it| Wake::for_object(it, now)).collect();
        if phase != JobPhase::Completed {
            // Its shards were stopped, and did not wake those that wait for their places.
            let datasource = &job.spec.request.datasource;
            wakes.extend(self.0.wake_waiting_shards(attempt, &job.org, datasource).await?);
        }
        let began = status.started_at.unwrap_or(job.created_at);
        self.0.calls.job(phase == JobPhase::Completed, began.until(now));
        let audit = Some(audit(&write));
        let change = Change { releases, wakes, audit, ..Change::from(write) };
        Ok((change, AT_ONCE))
    }

    /// The job of the organisation that has waited longest for a place.
    async fn waiting(&self, attempt: &Attempt, org: &str) -> Result<Option<Object>> {
        let query = ObjectQuery {
            org: Some(org.to_owned()),
            kind: Some(JOB.into()),
            phase: Some(JobPhase::Queued.label().into()),
            limit: kernel::query::PAGE_MAX,
            ..ObjectQuery::default()
        };
        Ok(attempt.store().find(&query).await?.objects.pop())
    }

    /// Removes shards with their results, and in the end the job.
    async fn remove(
        &self,
        attempt: &Attempt,
        job: &Job,
        shards: &Shards,
        numbers: &[usize],
    ) -> Result<(Change, Requeue)> {
        let now = attempt.now();
        if numbers.is_empty() {
            let write = draft(&attempt.object, job.phase, &job.status).delete("deleted", now);
            let (audit, blobs) = (Some(audit(&write)), without_blobs(&write.object));
            return Ok((Change { audit, blobs, ..Change::from(write) }, Requeue::Never));
        }
        let chosen = shards.iter().filter(|(number, _, _)| numbers.contains(number));
        let remove = |(_, object, _): &(usize, Object, Typed<BulkShard>)| {
            let write = Draft::<BulkShard>::of(object).delete("deleted", now);
            Change { blobs: without_blobs(object), ..Change::from(write) }
        };
        for verdict in attempt.store().commit_all(chosen.map(remove).collect(), now).await? {
            verdict?;
        }
        Ok((Change::default(), AT_ONCE))
    }
}

/// Writes down why the job fails. Its end is a change of its own: each event is one message at most.
fn fail(attempt: &Attempt, job: &Job, status: &JobStatus) -> (Change, Requeue) {
    let write = draft(&attempt.object, job.phase, status).report(FAILING, attempt.now());
    (Change { hop: true, ..Change::from(write) }, AT_ONCE)
}

pub(super) fn draft<'a>(
    object: &'a Object,
    phase: JobPhase,
    status: &JobStatus,
) -> Draft<'a, BulkJob> {
    Draft::of(object).phase(&phase).status(status)
}

fn without_blobs(object: &Object) -> Vec<kernel::blob::BlobWrite> {
    vec![kernel::blob::BlobWrite::Remove { key: object.key.clone(), name: None }]
}

fn release(object: &Object, counter: String) -> Release {
    Release { counter, holder: object.key.to_string() }
}

/// The places for jobs of an organisation.
fn jobs_counter(org: &str) -> String {
    format!("advisor/jobs/{org}")
}

fn audit(write: &Write) -> AuditDraft {
    let object = &write.object;
    AuditDraft {
        actor: "mainstay".into(),
        action: format!("{JOB}.{}", write.event),
        target: object.key.to_string(),
        org: object.org.clone(),
        outcome: "done".into(),
        after: object.status.clone(),
        ..AuditDraft::default()
    }
}

fn encode(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::internal("encoding a blob", error))
}

/// A time as the advisor's own types have it.
pub(super) fn jiff_of(time: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(time.millis()).unwrap_or(jiff::Timestamp::MAX)
}

/// The notice of a job whose data source cannot be read.
fn notice_of(stop: &Stop) -> JobNotice {
    let error = match stop {
        Stop::Source(error) => error,
        Stop::Other(error) => return JobNotice::error(500, 500, error.with_causes()),
    };
    let why = &error.why;
    match error.problem {
        Problem::TimedOut => {
            let message = "SocketTimeoutException: the data source did not answer in time";
            JobNotice::error(503, 504, format!("{message} ({why})"))
        }
        Problem::Unreachable | Problem::CutOff | Problem::Throttled | Problem::Partial => {
            let message = "HttpHostConnectException: Unable to connect to the data source. Please \
                           try again later.";
            JobNotice::error(503, 503, format!("{message} ({why})"))
        }
        _ => JobNotice::error(500, 500, why.clone()),
    }
}
