//! A resource of an environment: what it should be, and how far it is. It has all that is needed to
//! go on, and to be destroyed, when its template is long gone.

use kernel::typed::Kind;
use kernel::{Key, Labels, Timestamp, labels};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::drift::{Drift, DriftPolicy};
use super::environment::Want;
use super::input::Input;
use super::period::Period;
use super::refs::{Address, Reference};
use super::template::{Link, Price};

pub const KIND: &str = "resource";

labels! {
    /// Where a resource is. One that is gone is deleted, and stays as history.
    pub enum Phase {
        /// Nothing of it was made.
        Pending = "pending",
        Applying = "applying",
        Ready = "ready",
        /// The last operation failed; something of it may exist.
        Failed = "failed",
        Stopping = "stopping",
        Stopped = "stopped",
        Starting = "starting",
        Destroying = "destroying",
    }
}

impl Phase {
    /// Whether a resource in this phase uses what it depends on, so that this must stay.
    pub fn uses_dependencies(self) -> bool {
        !matches!(self, Phase::Pending | Phase::Stopped)
    }

    /// Whether an operation goes on.
    pub fn is_working(self) -> bool {
        matches!(self, Phase::Applying | Phase::Stopping | Phase::Starting | Phase::Destroying)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    pub environment: String,
    pub address: Address,
    /// The template that makes it, as `name@version`.
    pub template: String,
    pub executor: String,
    /// How many of its name there are, if it is one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub input: Input,
    pub want: Want,
    /// Counts replacements: raised, it is destroyed and made again.
    #[serde(default)]
    pub incarnation: u32,
    /// What it depends on. The store has edges to those that are objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Reference>,
    #[serde(default)]
    pub drift: DriftPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub tags: Labels,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// When it entered its phase.
    pub since: Option<Timestamp>,
    /// None that is sensitive.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub outputs: Map<String, Value>,
    /// Of the completed input that was applied; empty if that did not succeed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub input_digest: String,
    /// Of what was observed after that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub seen_digest: String,
    /// The incarnation that exists.
    pub incarnation: u32,
    /// What it depended on when it was applied last: as long as it exists, it uses these too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applied_on: Vec<Reference>,
    /// It makes room for the replacement of something that it depends on, and comes back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub yielding: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// How far the operation is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub progress: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
}

labels! {
    /// Why a resource waits for another one.
    pub enum WaitReason {
        /// The dependency does not exist.
        Missing = "missing",
        NotReady = "not-ready",
        /// It failed, and is retried or needs a person.
        Failed = "failed",
        /// It is about to change, and its outputs with it.
        Outdated = "outdated",
        /// It is stopped, or is going to be.
        NotWanted = "not-wanted",
        /// An external dependency does not respond.
        Unreachable = "unreachable",
        /// The other one depends on it, and has to stop or to go first.
        UsedBy = "used-by",
    }
}
super::label::stored_as_label!(WaitReason);

/// One thing that a resource waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub on: Reference,
    pub reason: WaitReason,
    /// Since when the other one is as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub unblock: String,
}

impl Kind for Resource {
    type Phase = Phase;
    type Status = Status;
}

pub fn key(id: &str) -> Key {
    Key::new(KIND, id)
}
