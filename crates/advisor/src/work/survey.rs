//! One job from its request to its recommendations, in memory: what `mainstay advise` does without a
//! server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use kernel::{Error, Result, labels};
use parking_lot::Mutex;

use super::discovery::{Discovered, Discovery};
use super::profiles::Metrics;
use super::reader::Reader;
use super::shard::{Job, Outcome, Stop};
use crate::decide::maths::recommend::Options;
use crate::model::advice::Advice;
use crate::model::bulk::BulkRequest;
use crate::model::experiment_name::NameTemplate;
use crate::model::inventory::Member;
use crate::model::plan::Shard;
use crate::ports::prometheus::profile::Profile;
use crate::ports::prometheus::queries::{Queries, Range};
use crate::ports::prometheus::{Gate, Prometheus, QueryError};

/// The next shard is read while the last queries of one are answered. More at once would only take
/// memory: 100 MB for each.
const SHARDS_AT_ONCE: usize = 2;

#[derive(Debug, Clone)]
pub struct SurveyRequest {
    pub bulk: BulkRequest,
    /// What the names of experiments call the data source.
    pub datasource: String,
    pub names: NameTemplate,
    pub options: Options,
    /// For the whole job.
    pub deadline: Option<Duration>,
}

labels! {
    pub enum Phase {
        Discovering = "discovering",
        Reading = "reading",
    }
}

/// What a survey has done yet. No number ever falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    /// Containers that were found.
    pub total: usize,
    /// Containers that were read, those that failed included.
    pub done: usize,
    pub failed: usize,
    /// Queries that were sent.
    pub queries: u64,
}

#[derive(Debug, Clone)]
pub struct Survey {
    /// By the names of experiments.
    pub advice: Vec<Advice>,
    pub with_recording_rules: bool,
    pub notices: Vec<String>,
    pub queries: u64,
}

/// Reads everything that a request is about, and recommends. The window of the recommendations ends
/// with the whole second of `now`.
pub async fn survey(
    client: &Prometheus,
    request: &SurveyRequest,
    now: Timestamp,
    progress: impl Fn(&Progress) + Send + Sync,
) -> Result<Survey> {
    let gate = Gate::of(client);
    let reader = Reader::new(client, &gate);
    let first = Progress { phase: Phase::Discovering, total: 0, done: 0, failed: 0, queries: 0 };
    let tally = Tally { progress: Mutex::new(first), report: progress };
    let run = Run { client, request, reader: &reader, tally: &tally, now };
    let Some(deadline) = request.deadline else { return run.whole().await };
    tokio::time::timeout(deadline, run.whole()).await.unwrap_or_else(|_| {
        let Progress { total, done, .. } = *tally.progress.lock();
        let limit = deadline.as_secs_f64();
        let why = format!(
            "the survey did not end within {limit:.1} s: {done} of {total} containers were read"
        );
        Err(Error::unavailable(client.to_string(), why))
    })
}

/// Counts, and tells the caller.
struct Tally<F> {
    progress: Mutex<Progress>,
    report: F,
}

impl<F: Fn(&Progress)> Tally<F> {
    fn update(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress.lock();
        change(&mut progress);
        // Under the lock, so that reports come in order.
        (self.report)(&progress);
    }
}

struct Run<'a, F> {
    client: &'a Prometheus,
    request: &'a SurveyRequest,
    reader: &'a Reader<'a>,
    tally: &'a Tally<F>,
    now: Timestamp,
}

impl<F: Fn(&Progress) + Send + Sync> Run<'_, F> {
    async fn whole(&self) -> Result<Survey> {
        self.tally.update(|_| {});
        let SurveyRequest { bulk, names, options, .. } = self.request;
        let answered = || self.count_queries();
        let found = |containers: usize| {
            self.tally.update(|progress| {
                (progress.phase, progress.total) = (Phase::Reading, containers);
                progress.queries = self.reader.sent();
            });
        };
        let discovery = Discovery {
            reader: self.reader,
            bulk,
            names,
            metadata: &Profile::metadata(),
            metrics: &Metrics::BuiltIn,
            measurement_min: options.measurement_min,
            now: self.now,
            answered: &answered,
            found: &found,
            containers_max: usize::MAX,
        };
        let discovered = discovery.run().await.map_err(|stop| self.error(stop))?;
        let Discovered { plan, end, with_recording_rules, notices, .. } = discovered;
        let filter = bulk.filter.clone().unwrap_or_default();
        let profile = Metrics::BuiltIn.profile(with_recording_rules);
        let matchers = filter.matchers(&names.labels());
        let minutes = options.measurement_min;
        let members: Arc<[Member]> = plan.members.into();
        let job = Job {
            reader: self.reader,
            queries: Queries { profile: &profile, series: &matchers.series, minutes },
            range: Range::until(end),
            members: members.clone(),
            options: *options,
            thresholds: Arc::default(),
            answered: &answered,
        };
        let outcomes = self.read(&job, plan.shards).await?;
        let advice = self.advice(&members, outcomes, &filter.included_labels());
        Ok(Survey { advice, with_recording_rules, notices, queries: self.reader.sent() })
    }

    async fn read(&self, job: &Job<'_>, shards: Vec<Shard>) -> Result<Vec<Outcome>> {
        let all = Mutex::new(Vec::with_capacity(job.members.len()));
        let done = |outcomes: Vec<Outcome>| {
            self.tally.update(|progress| {
                progress.done += outcomes.len();
                progress.failed += outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
                progress.queries = self.reader.sent();
            });
            all.lock().extend(outcomes);
        };
        let done = &done;
        stream::iter(shards)
            .map(|shard| job.read(shard, done))
            .buffer_unordered(SHARDS_AT_ONCE)
            .try_collect::<()>()
            .await
            .map_err(|stop| match stop {
                Stop::Source(error) => {
                    let why = format!("reading failed: {}", error.why);
                    self.client.error(&QueryError { why, ..error })
                }
                Stop::Other(error) => error,
            })?;
        Ok(all.into_inner())
    }

    fn advice(
        &self,
        members: &[Member],
        outcomes: Vec<Outcome>,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Advice> {
        let SurveyRequest { names, datasource, .. } = self.request;
        let advice = |(index, outcome): Outcome| {
            let member = members[index].clone();
            let experiment = names.name(datasource, &member, labels);
            Advice { member, experiment, outcome }
        };
        let mut all: Vec<Advice> = outcomes.into_iter().map(advice).collect();
        all.sort_by(|a, b| a.experiment.cmp(&b.experiment));
        all
    }

    fn count_queries(&self) {
        self.tally.update(|progress| progress.queries = self.reader.sent());
    }

    fn error(&self, stop: Stop) -> Error {
        match stop {
            Stop::Source(error) => self.client.error(&error),
            Stop::Other(error) => error,
        }
    }
}
