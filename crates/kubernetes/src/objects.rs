//! What identifies an object and a version of it.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

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

/// The metadata that identifies one version of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
}

impl ObjectMeta {
    pub fn object_name(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.name)
    }

    pub fn revision(&self) -> Revision {
        Revision::of(&self.resource_version)
    }
}
