//! Drift: the world differs from the spec. What it is, and what a template wants done about it.

use std::collections::BTreeMap;

use kernel::{Timestamp, labels};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{Fields, one_of};
use super::label::stored_as_label;
use super::problem::Problems;

labels! {
    /// What is done about a difference.
    pub enum Handling {
        /// It is shown, and nothing else.
        Report = "report",
        /// The world is made what the spec says.
        Repair = "repair",
        /// The spec takes over what the world has.
        Adopt = "adopt",
    }
}
stored_as_label!(Handling);

labels! {
    pub enum DriftKind {
        /// It should exist, and does not.
        Missing = "missing",
        /// It exists with other fields.
        Changed = "changed",
        /// It exists, and should not.
        Unexpected = "unexpected",
    }
}
stored_as_label!(DriftKind);

/// What is done about the drift of a resource. Reporting surprises nobody, so it is the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriftPolicy {
    pub default: Handling,
    /// By the path of a field; it counts for what is in that field too. The longest path wins.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Handling>,
}

impl Default for DriftPolicy {
    fn default() -> DriftPolicy {
        DriftPolicy { default: Handling::Report, fields: BTreeMap::new() }
    }
}

impl DriftPolicy {
    /// Reads `repair`, or an object with a `default` and `fields`.
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<DriftPolicy> {
        let handling = one_of(&Handling::ALL);
        if value.is_string() {
            let default = handling(path, value, problems)?;
            return Some(DriftPolicy { default, ..DriftPolicy::default() });
        }
        let mut fields = Fields::new(path, value, problems)?;
        let default = fields.read("default", &handling).unwrap_or(Handling::Report);
        let by_field =
            fields.entries("fields", |_, path, value, problems| handling(path, value, problems));
        fields.finish();
        Some(DriftPolicy { default, fields: by_field.into_iter().collect() })
    }

    /// What is done about a difference in a field.
    pub fn of(&self, field: &str) -> Handling {
        let mut path = field;
        while !path.is_empty() {
            if let Some(handling) = self.fields.get(path) {
                return *handling;
            }
            path = path.rfind(['.', '[']).map_or("", |at| &path[..at]);
        }
        self.default
    }
}

/// One field that differs. A missing side is a field that is not there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldDiff {
    pub field: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The expression whose value is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<String>,
}

/// Drift that was found and is not settled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    pub kind: DriftKind,
    pub first_seen: Timestamp,
    /// From the spec to the world.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<FieldDiff>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_policy_of_the_nearest_field_counts() {
        let mut problems = Problems::default();
        let value =
            json!({"default": "repair", "fields": {"tags": "adopt", "tags.owner": "report"}});
        let policy = DriftPolicy::read("drift", value, &mut problems).unwrap();
        assert!(problems.is_empty());
        assert_eq!(policy.of("size"), Handling::Repair);
        assert_eq!(policy.of("tags.cost"), Handling::Adopt);
        assert_eq!(policy.of("tags[0]"), Handling::Adopt);
        assert_eq!(policy.of("tags.owner.name"), Handling::Report);
        let read = |value| DriftPolicy::read("drift", value, &mut Problems::default());
        assert_eq!(read(json!("adopt")).unwrap().default, Handling::Adopt);
        DriftPolicy::read("drift", json!({"fields": {"a": "fix"}}), &mut problems);
        assert!(
            problems.to_string().starts_with("drift.fields.a: `fix` is not known"),
            "{problems}"
        );
    }
}
