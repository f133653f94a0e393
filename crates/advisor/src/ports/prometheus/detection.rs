//! The queries that detect what else runs in the containers of a shard, a GPU or a Java virtual
//! machine, and those that measure the GPUs.
//!
//! A GPU is measured by an exporter of its node, so the labels of the container that uses it begin
//! with `exported_`.

use std::collections::BTreeSet;

use super::profile::{Profile, ProfileError};
use super::promql;
use super::queries::{
    GROUP, MINUTES, NAMESPACES, OWNERS, Queries, Query, attributed, complete, everything,
};
use super::template::{aggregation, owners};
use crate::model::inventory::{Attribution, Selection};
use crate::model::measure::Aggregate::{Max, Sum};
use crate::model::measure::Metric;
use crate::model::measure::Metric::*;

/// All that is measured of an accelerator, the metric that detects it first.
const ACCELERATOR: [Metric; 3] =
    [AcceleratorMemoryUsage, AcceleratorCoreUsage, AcceleratorFrameBufferUsage];

impl Queries<'_> {
    /// The queries that detect which containers have a JVM, and which use an accelerator; that one is
    /// the use of its memory, too. What the profile does not measure is not detected.
    pub fn detection(&self, selection: &Selection) -> Result<Vec<Query>, ProfileError> {
        let mut queries = Vec::new();
        for (metric, aggregate) in [(JvmInfo, Sum), (JvmInfoTotal, Sum)] {
            if self.profile.has(metric.container_variable()) {
                let fill = |template: &str| {
                    self.fill(&attributed(template, selection.attribution)?, selection)
                };
                queries.push(self.of(metric, aggregate, fill)?);
            }
        }
        if ACCELERATOR.iter().all(|metric| self.profile.has(metric.container_variable())) {
            queries.push(self.accelerators(AcceleratorMemoryUsage, selection)?);
        }
        Ok(queries)
    }

    /// The query for the use of the cores of accelerators.
    pub fn accelerator_cores(&self, selection: &Selection) -> Result<Query, ProfileError> {
        self.accelerators(AcceleratorCoreUsage, selection)
    }

    fn accelerators(&self, metric: Metric, selection: &Selection) -> Result<Query, ProfileError> {
        let fill =
            |template: &str| self.fill(&exported(template, selection.attribution)?, selection);
        self.of(metric, Max, fill)
    }

    /// The query for the memory of accelerators, which have ids instead of containers.
    pub fn frame_buffers(&self, uuids: &BTreeSet<String>) -> Result<Query, ProfileError> {
        let one_of = promql::one_of(uuids.iter().map(String::as_str));
        let slots =
            [("=\"$UUID$\"", self.with_series(one_of)), (MINUTES, self.minutes.to_string())];
        let fill = |template: &str| {
            if template.contains(slots[0].0) {
                complete(template, &slots)
            } else {
                Err("it has no `UUID=\"$UUID$\"`")
            }
        };
        self.of(AcceleratorFrameBufferUsage, Max, fill)
    }

    /// Whether all shards can be measured: with what containers need, and with what else it has.
    pub fn check(profile: &Profile) -> Result<(), ProfileError> {
        let queries = Queries { profile, series: &[], minutes: 15 };
        let mut selection = everything(&BTreeSet::from(["namespace".to_owned()]));
        for attribution in [Attribution::Name, Attribution::Owner] {
            selection.attribution = attribution;
            queries.containers(&selection)?;
            if queries.detection(&selection)?.iter().any(|query| query.metric == ACCELERATOR[0]) {
                queries.accelerator_cores(&selection)?;
                queries.frame_buffers(&BTreeSet::from(["uuid".to_owned()]))?;
            }
        }
        if NAMESPACES.iter().any(|(metric, _)| profile.has(metric.namespace_variable())) {
            queries.namespaces(&selection.namespaces)?;
        }
        Ok(())
    }
}

/// As [`attributed`], where the labels of containers begin with `exported_`.
fn exported(template: &str, attribution: Attribution) -> Result<String, &'static str> {
    let found = aggregation(template).ok_or("it is not an aggregation")?;
    let needed = ["exported_namespace", "exported_container", "UUID", "modelName"];
    if !needed.iter().all(|label| found.labels.contains(label)) {
        return Err("it does not aggregate by exported_namespace, exported_container, UUID and \
                    modelName");
    }
    if attribution != Attribution::Owner {
        return Ok(template.to_owned());
    }
    let renamed = |label: &str, of: String| {
        format!("label_replace({of}, \"exported_{label}\", \"{GROUP}\", \"{label}\", \"(.*)\")")
    };
    Ok(format!(
        "{} by ({}, workload, workload_type) (({}) * on (exported_namespace, exported_pod) \
         group_left (workload, workload_type) {})",
        found.operator,
        found.labels.join(", "),
        found.inner,
        renamed("namespace", renamed("pod", owners(OWNERS)))
    ))
}
