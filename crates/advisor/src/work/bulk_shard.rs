//! Reads the shards of bulk jobs. Prometheus is read once: what came out is durable before the
//! experiments are written, and each of those knows which results it has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::{Refusal, Wake};
use kernel::driver::{AnyWorker, Attempt, Requeue};
use kernel::typed::Typed;
use kernel::{Change, Class, Draft, Error, Key, Object, Result, files};
use parking_lot::Mutex;

use super::reader::Reader;
use super::shard::{Job as Reading, Outcome, Stop};
use super::{Advisor, cancellable, lines, profiles, recommended};
use crate::decide::job::{NextOfShard, next_of_shard};
use crate::model::experiment::{Experiment, PERFORMANCE_PROFILE, experiment_key};
use crate::model::inventory::Member;
use crate::model::job::{
    BulkJob, BulkShard, RESULTS, ResultRef, SHARD, ShardPhase, ShardStatus, job_key,
};
use crate::model::plan::Shard;
use crate::model::tenant::Tenant;
use crate::ports::prometheus::queries::{Queries, Range};
use crate::store::{self, Results};

/// When a shard looks again whether there is a place for it, if nobody wakes it before.
const WAITING_POLL: Duration = Duration::from_secs(30);
const AT_ONCE: Requeue = Requeue::After(Duration::ZERO);

pub struct ShardWorker(pub Arc<Advisor>);

type Job = Typed<BulkJob>;

#[async_trait]
impl AnyWorker for ShardWorker {
    fn kind(&self) -> &str {
        SHARD
    }

    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)> {
        let object = &attempt.object;
        if object.deleted_at.is_some() {
            return Ok((Change::default(), Requeue::Never));
        }
        let shard = Typed::<BulkShard>::from_object(object)?;
        let next = next_of_shard(&shard);
        if next == NextOfShard::Nothing {
            return Ok((Change::default(), Requeue::Never));
        }
        let Some((_, job)) = store::job(attempt.store(), &shard.spec.job).await? else {
            let write = Draft::<BulkShard>::of(object).delete("deleted", attempt.now());
            return Ok((Change::from(write), Requeue::Never));
        };
        if next == NextOfShard::Enter {
            return self.enter(attempt, &shard, &job).await;
        }
        match cancellable(attempt, self.read(attempt, &shard, &job)).await {
            // No other attempt would go better, and its job and its place must not wait for a person.
            Err(error) if matches!(error.class(), Class::Invalid | Class::Terminal) => {
                self.fail(attempt, &shard, &job, error).await
            }
            done => done,
        }
    }
}

impl ShardWorker {
    /// Takes a place among the readers of the data source, or waits for one.
    async fn enter(
        &self,
        attempt: &Attempt,
        shard: &Typed<BulkShard>,
        job: &Job,
    ) -> Result<(Change, Requeue)> {
        let draft = Draft::<BulkShard>::of(&attempt.object).phase(&ShardPhase::Reading);
        let write = draft.report("reading", attempt.now());
        let counter = self.0.reads_counter(&job.org, &job.spec.request.datasource);
        let takes = vec![shard.take(counter, 1, self.0.config.shards_max)];
        match attempt.record(Change { takes, hop: true, ..Change::from(write) }).await {
            Ok(()) => Ok((Change::default(), AT_ONCE)),
            Err(Error::Refused(Refusal::Limit { .. })) => {
                Ok((Change::default(), Requeue::After(WAITING_POLL)))
            }
            Err(error) => Err(error),
        }
    }

    async fn read(
        &self,
        attempt: &Attempt,
        shard: &Typed<BulkShard>,
        job: &Job,
    ) -> Result<(Change, Requeue)> {
        let key = &attempt.object.key;
        let results = match store::results(&self.0.app, key).await? {
            // Read by an earlier attempt.
            Some(results) => results,
            None => {
                let data = self.results(attempt, shard, job).await?;
                let blobs = self.0.app.blobs.put(key, RESULTS, None, &data, false)?;
                let expects = vec![(key.clone(), attempt.object.revision)];
                attempt.record(Change { blobs, expects, ..Change::default() }).await?;
                Results::new(data)
            }
        };
        self.write_experiments(attempt, job, &results).await?;
        self.end(attempt, shard, job, sum(&results)?).await
    }

    /// Ends a shard of which nothing can be written.
    async fn fail(
        &self,
        attempt: &Attempt,
        shard: &Typed<BulkShard>,
        job: &Job,
        error: Error,
    ) -> Result<(Change, Requeue)> {
        let members = store::members(&self.0.app, &attempt.object.key).await.ok().flatten();
        let count = u32::try_from(members.map_or(0, |members| members.len())).unwrap_or(u32::MAX);
        let error = Some(error.with_causes());
        tracing::warn!(shard = shard.id, error, "a shard of a bulk job failed");
        let status = ShardStatus { processed: count, failed: count, existing: 0, error };
        self.end(attempt, shard, job, status).await
    }

    /// Reads the data source, and makes a line of each container.
    async fn results(
        &self,
        attempt: &Attempt,
        shard: &Typed<BulkShard>,
        job: &Job,
    ) -> Result<Vec<u8>> {
        let lost = || Error::internal("a bulk shard", "its containers are missing");
        let members = store::members(&self.0.app, &attempt.object.key).await?.ok_or_else(lost)?;
        let members: Arc<[Member]> = members.into();
        let known = self.experiments(attempt, job, &members).await?;
        let outcomes = self.measure(attempt, job, shard, members.clone(), &known).await;
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(Stop::Source(error)) if self.0.tries_again(attempt, &error) => {
                return Err(Error::Transient(error.why));
            }
            Err(Stop::Other(error)) if error.class() == Class::Transient => return Err(error),
            Err(stop) => {
                let why = match stop {
                    Stop::Source(error) => error.why,
                    Stop::Other(error) => error.with_causes(),
                };
                (0..members.len()).map(|index| (index, Err(why.clone()))).collect()
            }
        };
        let names = self.names(job, &members);
        let (request, now) = (job.spec.request.clone(), attempt.now());
        files::blocking(move || {
            lines::of_members(&members, &names, known, outcomes, &request.datasource, now)
        })
        .await
    }

    async fn measure(
        &self,
        attempt: &Attempt,
        job: &Job,
        shard: &Typed<BulkShard>,
        members: Arc<[Member]>,
        known: &[(usize, Option<Experiment>)],
    ) -> Result<Vec<Outcome>, Stop> {
        let request = &job.spec.request;
        let source = self.0.sources.find(&job.org, &request.datasource).await?;
        let source = source.ok_or_else(|| {
            Error::invalid("datasource", format!("`{}` is not known any more", request.datasource))
        })?;
        let reader = Reader::new(&source.client, &source.gate);
        let filter = request.filter.clone().unwrap_or_default();
        let matchers = filter.matchers(&self.0.names.labels());
        let options = self.0.options();
        let end_ms = job.status.window_end_ms.unwrap_or(job.created_at.millis());
        let end = super::job::jiff_of(kernel::Timestamp(end_ms));
        let mut thresholds = HashMap::new();
        // Nearly always one.
        let mut by_profile: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, experiment) in known {
            thresholds.extend(experiment.as_ref().map(|known| (*index, known.threshold)));
            let profile = experiment.as_ref().map(|known| known.performance_profile.as_str());
            by_profile.entry(profile.unwrap_or(PERFORMANCE_PROFILE)).or_default().push(*index);
        }
        let thresholds = Arc::new(thresholds);
        let narrow = shard.spec.narrow || by_profile.len() > 1;
        let outcomes = Mutex::new(Vec::with_capacity(members.len()));
        for (name, chosen) in by_profile {
            let tenant = Tenant::of_object(job);
            let metrics = profiles::metrics(attempt.store(), tenant, name).await?;
            let Some(metrics) = metrics else {
                let why = format!("The metric profile `{name}` of the experiment does not exist.");
                outcomes.lock().extend(chosen.into_iter().map(|index| (index, Err(why.clone()))));
                continue;
            };
            let profile = metrics.profile(job.status.with_recording_rules);
            let minutes = options.measurement_min;
            let reading = Reading {
                reader: &reader,
                queries: Queries { profile: &profile, series: &matchers.series, minutes },
                range: Range::until(end),
                members: members.clone(),
                options,
                thresholds: thresholds.clone(),
                answered: &|| {},
            };
            let part = Shard { attribution: shard.spec.attribution, narrow, members: chosen };
            reading.read(part, |some| outcomes.lock().extend(some)).await?;
        }
        let mut outcomes = outcomes.into_inner();
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes)
    }

    fn names(&self, job: &Job, members: &[Member]) -> Vec<String> {
        let request = &job.spec.request;
        let labels = request.filter.clone().unwrap_or_default().included_labels();
        let name = |member| self.0.names.name(&request.datasource, member, &labels);
        members.iter().map(name).collect()
    }

    /// The experiments that were there before the job, by the indexes of the members.
    async fn experiments(
        &self,
        attempt: &Attempt,
        job: &Job,
        members: &[Member],
    ) -> Result<Vec<(usize, Option<Experiment>)>> {
        let (names, tenant) = (self.names(job, members), Tenant::of_object(job));
        let keys: Vec<Key> = names.iter().map(|name| experiment_key(tenant, name)).collect();
        let found = store::experiments(attempt.store(), &keys).await?;
        let mut by_key = HashMap::new();
        for object in found {
            if object.created_at < job.created_at {
                by_key.insert(object.key.clone(), store::experiment(&object)?.spec);
            }
        }
        Ok(keys.iter().map(|key| by_key.remove(key)).enumerate().collect())
    }

    /// Writes the results into the experiments. Those that have them already are left out; those that
    /// another job writes at the same time are decided again. Nothing is written once the shard was
    /// stopped: the end of its job comes after all that it has written.
    async fn write_experiments(
        &self,
        attempt: &Attempt,
        job: &Job,
        results: &Results,
    ) -> Result<()> {
        let end_ms = job.status.window_end_ms.unwrap_or_default();
        let (shard, tenant) = (&attempt.object.key, Tenant::of_object(job));
        let mut open: Vec<u32> = (0..u32::try_from(results.len()).unwrap_or(u32::MAX)).collect();
        while !open.is_empty() {
            let mut lines = Vec::with_capacity(open.len());
            for number in &open {
                let lost = || Error::internal("the results of a shard", "a line is missing");
                let line = results.line(*number as usize)?.ok_or_else(lost)?;
                lines.push((*number, experiment_key(tenant, &line.experiment.name), line));
            }
            let keys: Vec<Key> = lines.iter().map(|(_, key, _)| key.clone()).collect();
            let found = attempt.store().get(&keys).await?;
            let found: HashMap<Key, Object> =
                found.into_iter().map(|object| (object.key.clone(), object)).collect();
            let now = attempt.now();
            let (mut numbers, mut changes) = (Vec::new(), Vec::new());
            for (number, key, line) in lines {
                let result = ResultRef { of: shard.clone(), line: number, end_ms };
                let owner = recommended::Owner {
                    org: &job.org,
                    owner: &job.owner,
                    // The shard was made when its containers had been found.
                    found_at: attempt.object.created_at,
                };
                let before = found.get(&key);
                let job = Some(job.id.as_str());
                if let Some(change) =
                    recommended::change(before, key, owner, line, result, job, now)?
                {
                    numbers.push(number);
                    let expects = vec![(shard.clone(), attempt.object.revision)];
                    let cause = Some(attempt.object.cause.clone());
                    changes.push(Change { cause, expects, ..change });
                }
            }
            let verdicts = attempt.store().commit_all(changes, now).await?;
            open = Vec::new();
            for (number, verdict) in numbers.into_iter().zip(verdicts) {
                match verdict {
                    Ok(_) => {}
                    Err(Refusal::Stale { key, .. }) if key != *shard => open.push(number),
                    Err(Refusal::Exists(_)) => open.push(number),
                    Err(refusal) => return Err(refusal.into()),
                }
            }
        }
        Ok(())
    }

    /// The one change that ends a shard, frees its place and wakes who waits for that.
    async fn end(
        &self,
        attempt: &Attempt,
        shard: &Typed<BulkShard>,
        job: &Job,
        status: ShardStatus,
    ) -> Result<(Change, Requeue)> {
        let all_failed = status.failed > 0 && status.failed == status.processed;
        let phase = if all_failed { ShardPhase::Failed } else { ShardPhase::Done };
        let now = attempt.now();
        let draft = Draft::<BulkShard>::of(&attempt.object).phase(&phase).status(&status);
        let datasource = &job.spec.request.datasource;
        let releases = shard.releases([self.0.reads_counter(&job.org, datasource)]);
        let mut wakes = vec![Wake::new(job_key(&job.id), &job.org, now)];
        wakes.extend(self.0.wake_waiting_shards(attempt, &job.org, datasource).await?);
        let write = draft.transition(phase.label(), now);
        Ok((Change { wakes, releases, ..Change::from(write) }, Requeue::Never))
    }
}

/// What came out of a shard.
fn sum(results: &Results) -> Result<ShardStatus> {
    let mut status = ShardStatus::default();
    for number in 0..results.len() {
        let Some(line) = results.line(number)? else { continue };
        status.processed += 1;
        status.existing += u32::from(line.existing);
        if let Some(error) = line.error {
            status.failed += 1;
            status.error.get_or_insert(error);
        }
    }
    Ok(status)
}
