//! An instance of a managed service: its spec, its status, and its ten phases.

use std::collections::BTreeSet;

use kernel::{Timestamp, Typed};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::interned::{InternedMap, Interner};

kernel::labels! {
    /// The ten phases, as they are on the wire. A deleted instance has none: its object stays.
    #[derive(Default)]
    pub enum Phase {
        #[default]
        Accepted = "accepted",
        Preparing = "preparing",
        Provisioning = "provisioning",
        Ready = "ready",
        Failed = "failed",
        Deprovision = "deprovision",
        Deleting = "deleting",
        Suspending = "suspending",
        Suspended = "suspended",
        Resuming = "resuming",
    }
}

impl Phase {
    /// Whether it is being deleted.
    pub fn is_going(self) -> bool {
        matches!(self, Phase::Deprovision | Phase::Deleting)
    }

    /// Whether the agent of its cluster gets it.
    pub fn is_visible_to_agent(self) -> bool {
        !matches!(self, Phase::Accepted | Phase::Preparing | Phase::Deleting)
    }
}

/// The desired state: set by its owner, by an admin, by the catalogue at its creation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Spec {
    pub cloud_provider: String,
    pub region: String,
    pub multi_az: bool,
    pub instance_type: String,
    pub size_id: String,
    pub units: i64,
    pub billing_model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub marketplace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub billing_cloud_account_id: String,
    /// The organisation's own cluster that it must run on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub own_cluster_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// The backend that counts it, so that the same one releases it.
    pub quota_type: String,
    /// The quota counter that it holds.
    pub quota_counter: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subscription_id: String,
    #[serde(skip_serializing_if = "InternedMap::is_empty")]
    pub fields: InternedMap<Value>,
    /// Desired versions, by component; empty until it is placed.
    #[serde(skip_serializing_if = "InternedMap::is_empty")]
    pub versions: InternedMap<String>,
    /// Values of its size that were raised.
    #[serde(skip_serializing_if = "InternedMap::is_empty")]
    pub raised: InternedMap<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The end of its size's lifespan. A quota that ends may set an earlier expiry; one that is
    /// renewed restores this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifespan_ends: Option<Timestamp>,
    /// The billing model that it is being promoted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Promotion>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promotion {
    pub to: String,
    #[serde(default)]
    pub marketplace: String,
    #[serde(default)]
    pub billing_cloud_account_id: String,
    /// Empty while it is in progress.
    #[serde(default)]
    pub failed: String,
}

/// What was observed and decided. Wire fields come from here and from [`Spec`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Status {
    /// Since when it has its phase.
    pub since: Timestamp,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The capacity counter of its cluster that it holds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub capacity_counter: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub placement_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Where it can be reached, if not at its host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<Route>>,
    /// Every DNS name that it ever had: all of them are removed with it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub names: BTreeSet<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub routes_created: bool,
    /// The DNS change that is not in sync yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dns_change: String,
    /// The agent has reported it as ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agent_ready: bool,
    #[serde(skip_serializing_if = "InternedMap::is_empty")]
    pub versions: InternedMap<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upgrading: Vec<String>,
    /// Further reported values, of those that the kind names.
    #[serde(skip_serializing_if = "InternedMap::is_empty")]
    pub agent: InternedMap<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failed_reason: String,
    /// What it waits for, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// Clusters that rejected it, so that it is not placed there again.
    #[serde(rename = "refused_by", skip_serializing_if = "Vec::is_empty")]
    pub rejected_by: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    pub domain: String,
    pub router: String,
}

pub type Instance = Typed<Spec>;

impl kernel::typed::Kind for Spec {
    type Phase = Phase;
    type Status = Status;
}

impl Spec {
    /// Whether it counts against its owner's trials instead of a quota.
    pub fn is_trial(&self) -> bool {
        self.quota_counter.starts_with("fleet/trial/")
    }
}

impl Status {
    /// Whether anything of it is, or may be, on a data plane.
    pub fn is_on_data_plane(&self) -> bool {
        !self.placement_id.is_empty()
    }
}

/// Maps that instances share.
#[derive(Debug, Default)]
pub struct Interners {
    texts: Interner<String>,
    values: Interner<Value>,
}

impl Interners {
    /// Shares equal maps with other instances in memory.
    pub fn intern(&mut self, Instance { spec, status, .. }: &mut Instance) {
        for texts in [&mut spec.versions, &mut status.versions, &mut status.agent] {
            self.texts.intern(texts);
        }
        for values in [&mut spec.fields, &mut spec.raised] {
            self.values.intern(values);
        }
    }
}

/// The counters that an instance may hold until it is deleted.
pub fn counters(Instance { kind, org, name, spec, status, .. }: &Instance) -> Vec<String> {
    let Spec { cloud_provider, region, instance_type, .. } = spec;
    let mut counters = vec![
        name_counter(kind, org, name),
        region_counter(kind, cloud_provider, region, instance_type),
        spec.quota_counter.clone(),
        status.capacity_counter.clone(),
    ];
    counters.retain(|counter| !counter.is_empty());
    counters
}

pub fn name_counter(kind: &str, org: &str, name: &str) -> String {
    format!("fleet/name/{kind}/{org}/{name}")
}

pub fn region_counter(kind: &str, cloud: &str, region: &str, instance_type: &str) -> String {
    format!("fleet/region/{kind}/{cloud}/{region}/{instance_type}")
}

/// The counter of the trials of one user of an organisation.
pub fn trial_counter(kind: &str, org: &str, owner: &str) -> String {
    format!("fleet/trial/{kind}/{org}/{owner}")
}
