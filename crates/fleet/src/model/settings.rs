//! Settings that decisions depend on.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaType {
    List,
    Ams,
}

impl QuotaType {
    pub fn label(self) -> &'static str {
        match self {
            QuotaType::List => "quota-management-list",
            QuotaType::Ams => "ams",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// Clusters are those of the file; an instance is placed when it is created.
    Manual,
    /// Clusters are created and deleted as needed; an instance waits for one.
    Auto,
    /// Any ready cluster, without limits.
    None,
}

/// How long an instance may be in a phase before it fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    pub accepted_s: u64,
    /// Placed, but its cluster offers no version.
    pub versions_s: u64,
    pub preparing_s: u64,
    pub provisioning_s: u64,
    pub resuming_s: u64,
    /// A cluster, from the request to its provider on.
    pub cluster_s: u64,
    /// How often the state outside is compared with the desired one.
    pub recheck_s: u64,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            accepted_s: 3_600,
            versions_s: 300,
            preparing_s: 300,
            provisioning_s: 3_600,
            resuming_s: 3_600,
            cluster_s: 14_400,
            recheck_s: 3_600,
        }
    }
}

/// How quota is determined and enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaSettings {
    pub quota_type: QuotaType,
    /// Whether the limits of the quota list are enforced.
    pub enforced: bool,
    /// The limit of entries in the quota list that have none.
    pub max_allowed_instances: i64,
    pub trials_allowed: bool,
    /// Trial instances of each user of an organisation.
    pub trials_max: i64,
}
