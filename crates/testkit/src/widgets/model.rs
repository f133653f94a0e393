//! The types of a widget: spec, status, phases, and the request for a new one.

use kernel::{Key, Labels, Object, Result, Typed};
use serde::{Deserialize, Serialize};

pub const KIND: &str = "widget";

/// The desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    pub size: u32,
    /// How many attempts fail before one succeeds.
    pub fail_times: i32,
    /// How many attempts panic before one succeeds.
    pub panic_times: i32,
    /// Fails permanently, with this reason.
    pub broken: Option<String>,
    /// How long building one holds an attempt.
    pub hold_s: u32,
    /// How often the workshop is asked about a build that it has started before it is ready.
    pub polls: u32,
    /// Deletion was requested.
    pub deleting: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The objects that it waits for.
    pub waiting_for: Vec<Key>,
    pub size: u32,
}

kernel::labels! {
    pub enum Phase {
        Accepted = "accepted",
        Waiting = "waiting",
        Ready = "ready",
        Deleting = "deleting",
        Deleted = "deleted",
    }
}

impl kernel::typed::Kind for Spec {
    type Phase = Phase;
    type Status = Status;
}

/// A widget as it was read.
pub type Widget = Typed<Spec>;

/// A request for a new widget.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub id: String,
    pub org: String,
    pub owner: String,
    pub name: String,
    pub description: String,
    pub labels: Labels,
    pub spec: Spec,
    pub depends_on: Vec<Key>,
}

pub const DEPENDENCIES_MAX: usize = 32;

/// Widgets that an organisation may have.
pub const QUOTA: i64 = 1_000_000;

/// The counter of an organisation's widgets.
pub fn quota_counter(org: &str) -> String {
    format!("widgets/{org}")
}

/// The counter that makes a name unique in its organisation: its limit is 1.
pub fn name_counter(org: &str, name: &str) -> String {
    format!("name/{KIND}/{org}/{name}")
}

pub fn spec(object: &Object) -> Result<Spec> {
    object.spec.parse()
}
