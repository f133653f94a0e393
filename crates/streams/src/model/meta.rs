//! What all objects have in common, as the API server sends it.

use jiff::Timestamp;
use kubernetes::ObjectMeta;
pub use kubernetes::Revision;
use serde::Deserialize;

/// An object as it is parsed, before the few parts that are kept are taken from it.
#[derive(Debug, Clone, Deserialize)]
pub struct Raw<Spec, Status> {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

/// A status condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub last_transition_time: Option<Timestamp>,
}

/// Formats a time as Kubernetes does in conditions and events.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
