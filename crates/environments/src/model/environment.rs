//! An environment: what was asked for, and what its resources add up to.

use kernel::typed::Kind;
use kernel::{Key, Timestamp, labels};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::label::stored_as_label;
use super::period::Period;

pub const KIND: &str = "environment";

labels! {
    /// What is wanted of an environment, and of each of its resources.
    pub enum Want {
        Present = "present",
        Stopped = "stopped",
        Absent = "absent",
    }
}
stored_as_label!(Want);

labels! {
    /// Derived from the phases of the resources; nothing depends on it.
    pub enum Phase {
        Planned = "planned",
        AwaitingApproval = "awaiting-approval",
        Deploying = "deploying",
        /// All resources are ready, and its endpoints were not seen to work yet.
        Validating = "validating",
        Ok = "ok",
        Fail = "fail",
        Stopping = "stopping",
        Stopped = "stopped",
        Starting = "starting",
        Destroying = "destroying",
        Destroyed = "destroyed",
    }
}

impl Phase {
    /// As the founding document names it.
    pub fn title(self) -> &'static str {
        match self {
            Phase::Planned => "Planned",
            Phase::AwaitingApproval => "Awaiting approval",
            Phase::Deploying => "Deploying",
            Phase::Validating => "Deployed - Validating",
            Phase::Ok => "Deployed - OK",
            Phase::Fail => "Deployed - Fail",
            Phase::Stopping => "Stopping",
            Phase::Stopped => "Stopped",
            Phase::Starting => "Starting",
            Phase::Destroying => "Destroying",
            Phase::Destroyed => "Destroyed",
        }
    }
}

/// A published template that an environment is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateUse {
    pub id: String,
    pub name: String,
    pub version: String,
}

/// On whose behalf it is deployed: executors act with what this subject may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActingAs {
    pub subject: String,
    pub org: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub templates: Vec<TemplateUse>,
    #[serde(default)]
    pub parameters: Map<String, Value>,
    pub want: Want,
    /// The planned destruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy_at: Option<Timestamp>,
    /// When `destroy_at` was set: warnings of before that are not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy_set_at: Option<Timestamp>,
    /// It is stopped this long before its destruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_before: Option<Period>,
    /// The plan that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    #[serde(rename = "as", default)]
    pub acting_as: ActingAs,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<Why>,
    /// What a person can do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unblock: String,
    /// The warnings of its destruction that were given: the seconds before it of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warned_s: Option<u64>,
    /// When its planned destruction was carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fired_at: Option<Timestamp>,
    /// Seconds in which its endpoints worked, and in which they were probed.
    pub up_s: u64,
    pub probed_s: u64,
}

labels! {
    /// Why an environment has its phase.
    pub enum Reason {
        NotApplied = "not-applied",
        NeedsApproval = "needs-approval",
        ResourceFailed = "resource-failed",
        ResourceWaits = "resource-waits",
        InProgress = "in-progress",
        EndpointUnknown = "endpoint-unknown",
        EndpointFails = "endpoint-fails",
    }
}
stored_as_label!(Reason);

/// One reason, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    pub reason: Reason,
    /// The resource or endpoint that it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    pub since: Timestamp,
}

impl Kind for Environment {
    type Phase = Phase;
    type Status = Status;
}

pub fn key(id: &str) -> Key {
    Key::new(KIND, id)
}

/// The counter that makes a name unique in its organisation: its limit is 1.
pub fn name_counter(org: &str, name: &str) -> String {
    format!("env/name/{org}/{name}")
}

/// The counter of an organisation's environments of a template.
pub fn template_counter(org: &str, template: &str) -> String {
    format!("env/template/{org}/{template}")
}
