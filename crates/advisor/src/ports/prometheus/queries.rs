//! The queries that measure the containers of one shard: 17 range queries for all of them together.
//!
//! Of the 32 that the existing service asks for each container, these are all that its formulas read:
//! requests and limits do not need four aggregates, a throttle rate is never negative (so a maximum
//! of zero means an average of zero), and of the resident memory only the extremes count. The
//! expressions are those of the profile, so that Prometheus rounds as it does for the existing
//! service.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::profile::{Profile, ProfileError};
use super::promql;
use super::template::{aggregation, owners, recording_rules, substitute};
use crate::model::filter::Matcher;
use crate::model::inventory::{Attribution, Selection};
use crate::model::measure::{Aggregate, Metric};

/// Recommendations read 15 days in steps of 15 minutes.
const STEP_S: i64 = 900;
const RANGE_S: i64 = 15 * 24 * 3600;
/// The windows of a discovery that would be too large in steps of 15 minutes: 5 million samples, as
/// many as an answer may have, are 300,000 series.
const WINDOWS: i64 = 16;

use Aggregate::{Avg, Max, Min, Sum};
use Metric::*;

const CONTAINERS: [(Metric, Aggregate); 17] = [
    (CpuRequest, Avg),
    (CpuLimit, Avg),
    (CpuUsage, Avg),
    (CpuUsage, Sum),
    (CpuUsage, Min),
    (CpuUsage, Max),
    (CpuThrottle, Sum),
    (CpuThrottle, Min),
    (CpuThrottle, Max),
    (MemoryRequest, Avg),
    (MemoryLimit, Avg),
    (MemoryUsage, Avg),
    (MemoryUsage, Sum),
    (MemoryUsage, Min),
    (MemoryUsage, Max),
    (MemoryRss, Min),
    (MemoryRss, Max),
];

pub(super) const NAMESPACES: [(Metric, Aggregate); 16] = [
    (CpuRequest, Sum),
    (CpuLimit, Sum),
    (CpuUsage, Avg),
    (CpuUsage, Min),
    (CpuUsage, Max),
    (CpuThrottle, Avg),
    (CpuThrottle, Min),
    (CpuThrottle, Max),
    (MemoryRequest, Sum),
    (MemoryLimit, Sum),
    (MemoryUsage, Avg),
    (MemoryUsage, Min),
    (MemoryUsage, Max),
    (MemoryRss, Min),
    (MemoryRss, Max),
    (Pods, Avg),
];

/// One query, and what its answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub metric: Metric,
    pub aggregate: Aggregate,
    pub text: String,
}

/// The range of a range query, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub start_s: i64,
    pub end_s: i64,
    pub step_s: i64,
}

impl Range {
    /// What a recommendation as of `end` reads.
    pub fn until(end: Timestamp) -> Self {
        let end_s = end.as_millisecond().div_euclid(1000);
        Self { start_s: end_s - RANGE_S, end_s, step_s: STEP_S }
    }

    /// What a discovery within two times reads.
    pub fn between(start: Timestamp, end: Timestamp) -> Self {
        let second = |time: Timestamp| time.as_millisecond().div_euclid(1000);
        Self { start_s: second(start), end_s: second(end), step_s: STEP_S }
    }

    /// The same in few windows, each as long as a step in whole minutes, that together are the time
    /// between. The first begins up to 16 minutes early. None if they are not fewer.
    pub fn in_windows(start: Timestamp, end: Timestamp) -> Option<Self> {
        let Self { start_s, end_s, .. } = Self::between(start, end);
        let minutes = (end_s - start_s).unsigned_abs().div_ceil(60 * WINDOWS as u64);
        let step_s = minutes as i64 * 60;
        let range = Self { start_s: end_s - (WINDOWS - 1) * step_s, end_s, step_s };
        (step_s > STEP_S).then_some(range)
    }

    /// How many samples a series has at most.
    pub fn points(&self) -> usize {
        usize::try_from((self.end_s - self.start_s) / self.step_s).map_or(0, |steps| steps + 1)
    }

    /// The form of a range query. It is too long for an address: send it as the body of a POST.
    pub fn form(&self, query: &str) -> [(&'static str, String); 4] {
        [
            ("query", query.to_owned()),
            ("start", self.start_s.to_string()),
            ("end", self.end_s.to_string()),
            ("step", self.step_s.to_string()),
        ]
    }
}

/// Writes the queries of shards. The `series` matchers are added to every selector: they are labels
/// that all series of the data source have.
#[derive(Debug, Clone, Copy)]
pub struct Queries<'a> {
    pub profile: &'a Profile,
    pub series: &'a [Matcher],
    pub minutes: u32,
}

impl Queries<'_> {
    /// The queries of a shard.
    pub fn of_selection(&self, selection: &Selection) -> Result<Vec<Query>, ProfileError> {
        match selection.attribution {
            Attribution::Namespace => self.namespaces(&selection.namespaces),
            Attribution::Name | Attribution::Owner => self.containers(selection),
        }
    }

    /// The queries for the containers of a selection, with series by namespace and container; and by
    /// workload and its type where owners are asked.
    pub fn containers(&self, selection: &Selection) -> Result<Vec<Query>, ProfileError> {
        let query = |(metric, aggregate): &(Metric, Aggregate)| {
            let variable = metric.container_variable();
            let template = self.profile.expression(variable, aggregate.name())?;
            let text = attributed(template, selection.attribution);
            let text = text.and_then(|template| self.fill(&template, selection));
            query(*metric, *aggregate, variable, text)
        };
        CONTAINERS.iter().map(query).collect()
    }

    /// The queries for whole namespaces, with series by namespace.
    pub fn namespaces(&self, namespaces: &BTreeSet<String>) -> Result<Vec<Query>, ProfileError> {
        let selection = everything(namespaces);
        let query = |(metric, aggregate): &(Metric, Aggregate)| {
            let variable = metric.namespace_variable();
            let template = self.profile.expression(variable, aggregate.name())?;
            query(*metric, *aggregate, variable, self.fill(template, &selection))
        };
        NAMESPACES.iter().map(query).collect()
    }

    /// One query for each recording rule that the expressions read: its answer is empty where the
    /// rule does not exist.
    pub fn rule_probes(&self, queries: &[Query]) -> Vec<String> {
        let rules = queries.iter().flat_map(|query| recording_rules(&query.text));
        let rules: BTreeSet<&str> = rules.collect();
        let labels = match promql::matchers(self.series) {
            labels if labels.is_empty() => labels,
            labels => format!("{{{labels}}}"),
        };
        rules.into_iter().map(|rule| format!("count({rule}{labels})")).collect()
    }

    pub(super) fn of(
        &self,
        metric: Metric,
        aggregate: Aggregate,
        fill: impl Fn(&str) -> Result<String, &'static str>,
    ) -> Result<Query, ProfileError> {
        let variable = metric.container_variable();
        let template = self.profile.expression(variable, aggregate.name())?;
        query(metric, aggregate, variable, fill(template))
    }

    pub(super) fn fill(
        &self,
        template: &str,
        selection: &Selection,
    ) -> Result<String, &'static str> {
        let all_or = |names: &Option<BTreeSet<String>>| match names {
            None => "!=\"\"".to_owned(),
            Some(names) => format!("=~{}", promql::one_of(names.iter().map(String::as_str))),
        };
        let namespaces = promql::one_of(selection.namespaces.iter().map(String::as_str));
        let slots = [
            ("=\"$NAMESPACE$\"", self.with_series(namespaces)),
            ("=\"$CONTAINER_NAME$\"", all_or(&selection.containers)),
            ("=\"$WORKLOAD_NAME$\"", all_or(&selection.workloads)),
            (MINUTES, self.minutes.to_string()),
            (GROUP, GROUP.to_owned()),
        ];
        if !template.contains(slots[0].0) {
            return Err("it has no `namespace=\"$NAMESPACE$\"`");
        }
        complete(template, &slots)
    }

    pub(super) fn with_series(&self, one_of: String) -> String {
        match promql::matchers(self.series) {
            labels if labels.is_empty() => format!("=~{one_of}"),
            labels => format!("=~{one_of}, {labels}"),
        }
    }
}

pub(super) const MINUTES: &str = "$MEASUREMENT_DURATION_IN_MIN$";
/// Of `label_replace`.
pub(super) const GROUP: &str = "$1";

pub(super) const OWNERS: &str = "namespace_workload_pod:kube_pod_owner:relabel\
     {workload=\"$WORKLOAD_NAME$\", namespace=\"$NAMESPACE$\"}";

/// An expression whose answer says whose each series is.
pub(super) fn attributed(template: &str, attribution: Attribution) -> Result<String, &'static str> {
    match attribution {
        Attribution::Owner => by_owner(template),
        Attribution::Name | Attribution::Namespace => by_name(template),
    }
}

/// An expression as it is, if the labels of its answer identify containers.
fn by_name(template: &str) -> Result<String, &'static str> {
    let found = aggregation(template).ok_or("it is not an aggregation")?;
    if ["namespace", "container"].iter().all(|label| found.labels.contains(label)) {
        Ok(template.to_owned())
    } else {
        Err("it does not aggregate by namespace and container")
    }
}

/// The same expression, aggregated by the owners of pods as well.
fn by_owner(template: &str) -> Result<String, &'static str> {
    by_name(template)?;
    let found = aggregation(template).ok_or("it is not an aggregation")?;
    Ok(format!(
        "{} by ({}, workload, workload_type) (({}) * on (namespace, pod) \
         group_left (workload, workload_type) {})",
        found.operator,
        found.labels.join(", "),
        found.inner,
        owners(OWNERS)
    ))
}

pub(super) fn complete(template: &str, slots: &[(&str, String)]) -> Result<String, &'static str> {
    let empty: Vec<_> = slots.iter().map(|(pattern, _)| (*pattern, String::new())).collect();
    if substitute(template, &empty).contains('$') {
        return Err("it has a placeholder that is not known");
    }
    Ok(substitute(template, slots))
}

pub(super) fn everything(namespaces: &BTreeSet<String>) -> Selection {
    Selection {
        attribution: Attribution::Name,
        namespaces: namespaces.clone(),
        containers: None,
        workloads: None,
    }
}

fn query(
    metric: Metric,
    aggregate: Aggregate,
    variable: &str,
    text: Result<String, &'static str>,
) -> Result<Query, ProfileError> {
    let error = |problem| ProfileError::NotBatched {
        variable: variable.to_owned(),
        function: aggregate.name().to_owned(),
        problem,
    };
    text.map(|text| Query { metric, aggregate, text }).map_err(error)
}

impl Metric {
    /// What a profile calls it for a container.
    pub(super) fn container_variable(self) -> &'static str {
        match self {
            CpuRequest => "cpuRequest",
            CpuLimit => "cpuLimit",
            CpuUsage => "cpuUsage",
            CpuThrottle => "cpuThrottle",
            MemoryRequest => "memoryRequest",
            MemoryLimit => "memoryLimit",
            MemoryUsage => "memoryUsage",
            MemoryRss => "memoryRSS",
            Pods => "podCount",
            AcceleratorCoreUsage => "acceleratorCoreUsage",
            AcceleratorMemoryUsage => "acceleratorMemoryUsage",
            AcceleratorFrameBufferUsage => "acceleratorFrameBufferUsage",
            JvmInfo => "jvmInfo",
            JvmInfoTotal => "jvmInfoTotal",
        }
    }

    /// What a profile calls it for a namespace.
    pub(super) fn namespace_variable(self) -> &'static str {
        match self {
            CpuRequest => "namespaceCpuRequest",
            CpuLimit => "namespaceCpuLimit",
            CpuUsage => "namespaceCpuUsage",
            CpuThrottle => "namespaceCpuThrottle",
            MemoryRequest => "namespaceMemoryRequest",
            MemoryLimit => "namespaceMemoryLimit",
            MemoryUsage => "namespaceMemoryUsage",
            MemoryRss => "namespaceMemoryRSS",
            Pods => "namespaceTotalPods",
            other => other.container_variable(),
        }
    }
}
