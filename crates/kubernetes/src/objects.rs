//! Identifies objects and their versions, and compares an object with the desired one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use kernel::{Error, Result};
use kube::core::GroupVersionKind;
use serde::Deserialize;
use serde_json::Value;

/// The namespace and name of an object. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl NamespacedName {
    pub fn new(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A resource version that can be compared. One that is not a number counts as the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(u128);

impl Revision {
    pub fn of(resource_version: &str) -> Revision {
        Revision(resource_version.parse().unwrap_or(u128::MAX))
    }
}

/// The parts of an object's metadata that controllers use; the rest is dropped while parsing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
    pub owner_references: Option<Vec<OwnerReference>>,
    pub managed_fields: Option<Vec<ManagedFields>>,
}

impl ObjectMeta {
    pub fn object_name(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.name)
    }

    pub fn revision(&self) -> Revision {
        Revision::of(&self.resource_version)
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.as_ref()?.get(name).map(String::as_str)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: Option<bool>,
}

/// Who wrote fields of an object, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ManagedFields {
    pub manager: String,
    pub subresource: String,
    pub time: Option<Timestamp>,
}

/// Identifies an object of any kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    pub name: String,
}

impl ObjectRef {
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectRef {
        let own = str::to_owned;
        ObjectRef {
            api_version: own(api_version),
            kind: own(kind),
            namespace: own(namespace),
            name: own(name),
        }
    }

    pub fn from_manifest(object: &Value) -> Result<ObjectRef> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = ObjectRef {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        };
        for (field, value) in
            [("apiVersion", &name.api_version), ("kind", &name.kind), ("metadata.name", &name.name)]
        {
            if value.is_empty() {
                return Err(Error::invalid(format!("manifest.{field}"), "must be given"));
            }
        }
        Ok(name)
    }

    pub fn object_name(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.name)
    }

    pub fn kind(&self) -> GroupVersionKind {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        GroupVersionKind::gvk(group, version, &self.kind)
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// Whether an object has everything that is wanted. The server adds defaults, and others add fields;
/// a list has as many entries as wanted, in any order.
pub fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (_, Value::Null) => true,
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| covers(found.get(key).unwrap_or(&Value::Null), wanted)),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && wanted.iter().all(|wanted| found.iter().any(|found| covers(found, wanted)))
        }
        // The server leaves out what is empty.
        (Value::Null, Value::Object(wanted)) => wanted.is_empty(),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (Value::Null, Value::String(wanted)) => wanted.is_empty(),
        (Value::Null, Value::Bool(wanted)) => !wanted,
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_of_the_server_are_no_difference_and_edits_are() {
        let wanted =
            json!({"spec": {"replicas": 1, "ports": [{"port": 80}], "hostNetwork": false}});
        let found = json!({"spec": {
            "replicas": 1,
            "ports": [{"port": 80, "protocol": "TCP"}],
            "revisionHistoryLimit": 10,
        }, "status": {}});
        assert!(covers(&found, &wanted));
        for (path, value) in [
            ("/spec/replicas", json!(2)),
            ("/spec/ports", json!([])),
            ("/spec/ports", json!([{"port": 80}, {"port": 81}])),
            ("/spec/ports/0/port", json!(81)),
        ] {
            let mut other = found.clone();
            *other.pointer_mut(path).unwrap() = value;
            assert!(!covers(&other, &wanted), "{path}");
        }
    }

    #[test]
    fn an_object_without_a_name_is_refused_by_the_field() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}});
        assert!(
            ObjectRef::from_manifest(&object).unwrap_err().to_string().contains("metadata.name")
        );
        let name = ObjectRef::new("apps/v1", "Deployment", "a", "b");
        assert_eq!(
            (name.kind().group.as_str(), name.to_string().as_str()),
            ("apps", "Deployment a/b")
        );
        assert_eq!(ObjectRef::new("v1", "Service", "", "b").kind().version, "v1");
    }
}
