//! A data-plane cluster, where instances run.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::{Key, Timestamp, Typed};
use serde::{Deserialize, Serialize};

pub const KIND: &str = "cluster";
/// The id of the cluster that stands for this machine.
pub const LOCAL_ID: &str = "local";

kernel::labels! {
    #[derive(Default)]
    pub enum Phase {
        #[default]
        Accepted = "cluster_accepted",
        Provisioning = "cluster_provisioning",
        Provisioned = "cluster_provisioned",
        /// Everything is installed, but its agent has not reported.
        Waiting = "waiting_for_kas_fleetshard_operator",
        Ready = "ready",
        Failed = "failed",
        Deprovisioning = "deprovisioning",
        Cleanup = "cleanup",
    }
}

/// Who runs the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Processes of this machine.
    Local,
    /// It exists; a kubeconfig has a context of its name.
    #[default]
    Standalone,
    /// Terraform creates it.
    Terraform,
    /// It belongs to an organisation.
    Enterprise,
    /// Only its agent is known.
    Agent,
}

/// The desired state of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Spec {
    pub provider: Provider,
    /// Empty: any cloud and region.
    pub cloud_provider: String,
    pub region: String,
    pub multi_az: bool,
    pub schedulable: bool,
    /// Units of all types together that it may hold; none: as many as its agent reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// Supported kinds and instance types; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<String>,
    /// The domain of the cluster's routers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dns_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_id: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private_network: bool,
    #[serde(skip_serializing_if = "num_is_zero")]
    pub node_count: i64,
    /// Desired nodes by instance type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub max_nodes: BTreeMap<String, i64>,
    /// Its deletion was requested; it waits until it is empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// It is gone already: the deletion contacts neither the cluster nor its instances.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The clusters file declares it: it is deleted when the file no longer does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub from_file: bool,
    /// How often its agent's secret was rotated.
    #[serde(skip_serializing_if = "num_is_zero")]
    pub rotation: i64,
    /// Autoscaling created it, and may delete it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
}

pub(super) fn num_is_zero(number: &i64) -> bool {
    *number == 0
}

/// What its agent and its provider reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Status {
    pub since: Timestamp,
    /// The last contact with its agent that was recorded.
    #[serde(rename = "heard_at", skip_serializing_if = "Option::is_none")]
    pub agent_seen_at: Option<Timestamp>,
    /// Its agent has been silent for too long.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agent_lost: bool,
    /// Its provider was asked to create it: something of it may exist.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub provider_asked: bool,
    /// Since when it is empty and spare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_since: Option<Timestamp>,
    /// Units by instance type, as the agent reports them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Capacity>,
    /// Operators by kind, sorted by version.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub operators: BTreeMap<String, Vec<Operator>>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    pub max: i64,
    pub remaining: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    pub version: String,
    pub ready: bool,
    /// Versions of each component that it can run.
    pub components: BTreeMap<String, Vec<String>>,
}

pub type Cluster = Typed<Spec>;

impl kernel::typed::Kind for Spec {
    type Phase = Phase;
    type Status = Status;
}

impl Spec {
    pub fn takes(&self, kind: &str, instance_type: &str) -> bool {
        let any = |list: &[String], what: &str| list.is_empty() || list.iter().any(|x| x == what);
        any(&self.kinds, kind) && any(&self.instance_types, instance_type)
    }
}

impl Status {
    /// The newest ready operator, and the newest versions that it can run.
    pub fn newest_versions(&self, kind: &str, operator: &str) -> Option<BTreeMap<String, String>> {
        let ready = self.operators.get(kind)?.iter().rev().find(|one| one.ready)?;
        let newest = ready.components.iter().filter_map(|(component, versions)| {
            Some((component.clone(), versions.iter().max_by_key(|v| version_order(v))?.clone()))
        });
        Some(newest.chain([(operator.to_owned(), ready.version.clone())]).collect())
    }
}

/// Units of a type that a cluster may hold; none: no limit is known.
pub fn limit(cluster: &Cluster, instance_type: &str) -> Option<i64> {
    cluster.spec.limit.or_else(|| cluster.status.capacity.get(instance_type).map(|c| c.max))
}

/// The counter of the units that a cluster holds: of all types if one limit covers all.
pub fn counter(cluster: &Cluster, instance_type: &str) -> String {
    match cluster.spec.limit {
        Some(_) => format!("fleet/capacity/{}", cluster.id),
        None => format!("fleet/capacity/{}/{instance_type}", cluster.id),
    }
}

/// A cluster, and the units of the requested type that it holds (of all types, if one limit covers all).
#[derive(Debug, Clone)]
pub struct Candidate {
    pub cluster: Arc<Cluster>,
    pub used: i64,
}

pub fn key(id: &str) -> Key {
    Key::new(KIND, id)
}

/// A sort key of versions: numbers by value, the rest by letters.
pub fn version_order(version: &str) -> Vec<(u64, String)> {
    let parts = version.split(|c: char| !c.is_ascii_alphanumeric());
    parts
        .map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            (part[..digits].parse().unwrap_or(0), part[digits..].to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut versions = ["2.8.10", "2.8.2", "3.0.0", "2.8"];
        versions.sort_by_key(|v| version_order(v));
        assert_eq!(versions, ["2.8", "2.8.2", "2.8.10", "3.0.0"]);
        assert!(version_order("x.v0.26.0-10") > version_order("x.v0.26.0-9"));
    }

    #[test]
    fn the_newest_ready_operator_determines_the_versions() {
        let operator = |version: &str, ready, kafka: &[&str]| Operator {
            version: version.into(),
            ready,
            components: [("kafka".to_owned(), kafka.iter().map(|v| v.to_string()).collect())]
                .into(),
        };
        let status = Status {
            operators: [(
                "kafka".to_owned(),
                vec![operator("v1", true, &["2.8.1", "2.8.2"]), operator("v2", false, &["3.0.0"])],
            )]
            .into(),
            ..Status::default()
        };
        let newest = status.newest_versions("kafka", "strimzi").unwrap();
        assert_eq!(newest["kafka"], "2.8.2");
        assert_eq!(newest["strimzi"], "v1");
        assert_eq!(status.newest_versions("dinosaur", "x"), None);
    }
}
