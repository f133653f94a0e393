//! What a job is about to read: its containers, in shards, and by which expressions they are measured.

use jiff::Timestamp;
use kernel::Error;

use super::profiles::Metrics;
use super::reader::Reader;
use super::shard::Stop;
use crate::decide::split::{Limits, split};
use crate::model::bulk::{BulkRequest, ExperimentType};
use crate::model::experiment_name::NameTemplate;
use crate::model::filter::Matchers;
use crate::model::inventory::{Inventory, Member};
use crate::model::plan::{Plan, Shard};
use crate::model::time::Window;
use crate::ports::prometheus::pace::Class;
use crate::ports::prometheus::profile::{Profile, ProfileError};
use crate::ports::prometheus::queries::{Queries, Range};
use crate::ports::prometheus::scan::{self, Answer};
use crate::ports::prometheus::{QueryError, When, discover};

/// More than requests and scrapes take.
const CLOCK_SKEW_MAX_MS: i64 = 60_000;
pub(super) const NOTHING_TO_DO: &str = "Nothing to do.";
/// The classes of queries that are not of shards.
const DISCOVERY: usize = 1_000;
const PROBE: usize = DISCOVERY + 3;
/// Without this rule no workload is known.
const OWNERS: &str = "namespace_workload_pod:kube_pod_owner:relabel";

/// What is to be discovered.
pub struct Discovery<'a> {
    pub reader: &'a Reader<'a>,
    pub bulk: &'a BulkRequest,
    pub names: &'a NameTemplate,
    /// What finds containers.
    pub metadata: &'a Profile,
    /// What measures them.
    pub metrics: &'a Metrics,
    pub measurement_min: u32,
    pub now: Timestamp,
    /// Called after each query.
    pub answered: &'a (dyn Fn() + Send + Sync),
    /// Called with the number of containers when they are known.
    pub found: &'a (dyn Fn(usize) + Send + Sync),
    /// More containers are an error of the job.
    pub containers_max: usize,
}

#[derive(Debug)]
pub struct Discovered {
    pub inventory: Inventory,
    pub plan: Plan,
    /// The end of the window of all recommendations.
    pub end: Timestamp,
    pub with_recording_rules: bool,
    pub notices: Vec<String>,
}

/// Whether recording rules say what is measured.
struct Measuring {
    with_recording_rules: bool,
    notices: Vec<String>,
}

impl Discovery<'_> {
    pub async fn run(&self) -> Result<Discovered, Stop> {
        let window = self.bulk.time_range.as_ref().map(|range| range.window());
        let window = window.transpose().map(Option::flatten);
        let window = window.map_err(|error| Error::invalid("time_range", error.to_string()))?;
        let up = self.reader.handshake().await.map_err(Stop::Source)?;

        let filter = self.bulk.filter.clone().unwrap_or_default();
        let matchers = filter.matchers(&self.names.labels());
        let inventory = self.discover(&matchers, window).await?;
        let types = self.bulk.types();
        let mut notices = Vec::from_iter(self.clock_skew(&up));
        let mut members = Vec::new();
        if types.contains(&ExperimentType::Container) {
            members.extend(inventory.members());
        }
        if types.contains(&ExperimentType::Namespace) {
            members.extend(inventory.namespaces());
        }
        let end = self.end(window);
        if members.is_empty() {
            notices.push(NOTHING_TO_DO.to_owned());
            notices.extend(self.missing_owners(&inventory).await?);
            let plan = Plan { members, shards: Vec::new() };
            return Ok(Discovered { inventory, plan, end, with_recording_rules: true, notices });
        }
        (self.found)(members.len());
        if members.len() > self.containers_max {
            let plan = Plan { members, shards: Vec::new() };
            return Ok(Discovered { inventory, plan, end, with_recording_rules: true, notices });
        }
        let shards = split(&members, filter.narrows_namespaces(), Limits::default());
        let measuring = self.measuring(&matchers, &shards, &members, end).await?;
        notices.extend(measuring.notices);
        let with_recording_rules = measuring.with_recording_rules;
        let plan = Plan { members, shards };
        Ok(Discovered { inventory, plan, end, with_recording_rules, notices })
    }

    /// Until when data is read: now, unless the request bounds it.
    fn end(&self, window: Option<Window>) -> Timestamp {
        let range = self.bulk.time_range.as_ref();
        let bounds = range.and_then(|range| range.bound_recommendations).unwrap_or_default();
        match window {
            Some(window) if bounds => window.end.min(self.now),
            _ => self.now,
        }
    }

    /// Says so if the data source has another time: its newest data is then not what is asked for.
    fn clock_skew(&self, answer: &Answer) -> Option<String> {
        let theirs = *answer.series().next()?.1.first()?;
        let skew_ms = theirs - self.reader.client().ambient().now().millis();
        let (seconds, direction) =
            (skew_ms.abs() / 1000, if skew_ms < 0 { "behind" } else { "ahead of" });
        (skew_ms.abs() > CLOCK_SKEW_MAX_MS).then(|| {
            format!(
                "The clock of the data source is {seconds} s {direction} ours; data may be missing."
            )
        })
    }

    /// Asks what ran within a time range in steps of 15 minutes, as the existing service does. Of a
    /// large cluster that is too much for Prometheus or for us; then in few long windows.
    ///
    /// Nothing is missed by that: the expressions of a profile have a value wherever there is one
    /// sample within the window, and the windows leave no time out. What is less exact is the image
    /// and the number of pods of a container that was rolled out within the last window.
    async fn discover(
        &self,
        matchers: &Matchers,
        window: Option<Window>,
    ) -> Result<Inventory, Stop> {
        let queries =
            |minutes| discover::queries(self.metadata, matchers, minutes).map_err(bad_profile);
        let usual = queries(self.bulk.measurement_duration.minutes())?;
        let Some(Window { start, end }) = window else {
            return self.inventory(&usual, When::At(self.now)).await;
        };
        let found = self.inventory(&usual, When::Over(Range::between(start, end))).await;
        match (found, Range::in_windows(start, end)) {
            (Err(Stop::Source(error)), Some(range)) if error.problem.is_of_size() => {
                let long = queries(u32::try_from(range.step_s / 60).unwrap_or(u32::MAX))?;
                if !long.differs(&usual) {
                    return Err(Stop::Source(error));
                }
                tracing::debug!(%error, minutes = range.step_s / 60, "discovering in long windows");
                self.inventory(&long, When::Over(range)).await
            }
            (found, _) => found,
        }
    }

    async fn inventory(
        &self,
        queries: &discover::Discovery,
        when: When,
    ) -> Result<Inventory, Stop> {
        let ask = |text, number| async move {
            let class = Class::new(DISCOVERY + number, 0);
            let answer = self.reader.read(text, when, scan::Limits::default(), class).await;
            (self.answered)();
            answer
        };
        let (namespaces, workloads, containers) = tokio::try_join!(
            ask(&queries.namespaces, 0),
            ask(&queries.workloads, 1),
            ask(&queries.containers, 2),
        )
        .map_err(|error| during("discovery", &error))?;
        Ok(discover::inventory(&namespaces, &workloads, &containers))
    }

    /// Says so if nothing was found because a recording rule is missing.
    async fn missing_owners(&self, inventory: &Inventory) -> Result<Option<String>, Stop> {
        let found = inventory.namespaces.values().any(|workloads| !workloads.is_empty());
        if found || inventory.is_empty() || self.has_series(OWNERS, self.now).await? {
            return Ok(None);
        }
        let notice = format!(
            "There are namespaces, but the recording rule {OWNERS} has no series. It says which \
             workload a pod is of; install the rules of the kubernetes-mixin."
        );
        Ok(Some(notice))
    }

    /// The profile that reads recording rules, if the data source has them.
    async fn measuring(
        &self,
        matchers: &Matchers,
        shards: &[Shard],
        members: &[Member],
        end: Timestamp,
    ) -> Result<Measuring, Stop> {
        let profile = self.metrics.profile(true);
        let queries =
            Queries { profile: &profile, series: &matchers.series, minutes: self.measurement_min };
        let Some(first) = shards.first() else {
            return Err(Error::internal("a survey", "containers without shards").into());
        };
        let asked = queries.of_selection(&first.selection(members)).map_err(bad_profile)?;
        for probe in queries.rule_probes(&asked) {
            if self.has_answer(&probe, end).await? {
                continue;
            }
            let (with_recording_rules, notice) = match self.metrics {
                Metrics::BuiltIn => (
                    false,
                    format!(
                        "There is nothing for {probe}: without this recording rule CPU usage is \
                         computed from raw metrics, which takes several times as long."
                    ),
                ),
                Metrics::Own(_) => {
                    (true, format!("There is nothing for {probe}, which the metric profile reads."))
                }
            };
            return Ok(Measuring { with_recording_rules, notices: vec![notice] });
        }
        Ok(Measuring { with_recording_rules: true, notices: Vec::new() })
    }

    async fn has_series(&self, metric: &str, at: Timestamp) -> Result<bool, Stop> {
        self.has_answer(&format!("count({metric})"), at).await
    }

    async fn has_answer(&self, query: &str, at: Timestamp) -> Result<bool, Stop> {
        let limits = scan::Limits::default();
        let answer = self.reader.read(query, When::At(at), limits, Class::new(PROBE, 0)).await;
        (self.answered)();
        answer
            .map(|answer| answer.series_count() > 0)
            .map_err(|error| during("the search for recording rules", &error))
    }
}

fn during(what: &str, error: &QueryError) -> Stop {
    Stop::Source(QueryError { why: format!("{what} failed: {}", error.why), ..error.clone() })
}

fn bad_profile(error: ProfileError) -> Stop {
    Stop::Other(Error::invalid("profile", error.to_string()))
}
