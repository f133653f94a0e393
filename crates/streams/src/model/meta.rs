//! The parts of object metadata that are kept; the rest is dropped while parsing.

use jiff::Timestamp;
pub use kubernetes::Revision;
use serde::Deserialize;

use super::NamespacedName;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawMeta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub labels: Option<std::collections::BTreeMap<String, String>>,
    pub annotations: Option<std::collections::BTreeMap<String, String>>,
    pub owner_references: Option<Vec<Owner>>,
    pub managed_fields: Option<Vec<Writer>>,
}

impl RawMeta {
    pub fn object_name(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.name)
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.as_ref()?.get(name).map(String::as_str)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub fn revision(&self) -> Revision {
        Revision::of(&self.resource_version)
    }

    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: Option<bool>,
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

/// An entry of `managedFields`: who wrote fields, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Writer {
    pub manager: String,
    pub subresource: String,
    pub time: Option<Timestamp>,
}
