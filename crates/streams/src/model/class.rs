//! A StreamClass: names a kind of streams.

use std::sync::Arc;

use serde::Deserialize;

use super::meta::{Condition, Raw, Revision};
use super::{ClassName, CrdVersion, GROUP, NamespacedName};

pub type RawClass = Raw<RawSpec, Option<RawStatus>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawSpec {
    pub api_group_ref: Option<String>,
    pub api_version: String,
    pub kind_ref: String,
    pub plural_name: String,
    pub secret_refs: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawStatus {
    pub phase: String,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub name: ClassName,
    pub crd_version: CrdVersion,
    pub uid: String,
    pub revision: Revision,
    pub generation: i64,
    /// The namespace of its streams; none for all namespaces.
    pub namespace: Option<Arc<str>>,
    pub group: String,
    pub version: String,
    pub kind: Arc<str>,
    pub plural: String,
    pub secret_refs: Vec<String>,
    pub phase: String,
    /// From the first condition.
    pub reason: String,
    pub message: String,
}

impl Class {
    pub fn of(raw: &RawClass, crd_version: CrdVersion) -> Class {
        let RawClass { metadata, spec, status } = raw;
        let beta = crd_version == CrdVersion::V1Beta1;
        let name = if beta {
            format!("{}/{}", metadata.namespace, metadata.name)
        } else {
            metadata.name.clone()
        };
        let status = status.clone().unwrap_or_default();
        let condition = status.conditions.into_iter().next().unwrap_or_default();
        let group = spec.api_group_ref.as_deref().filter(|group| !group.is_empty());
        Class {
            name: name.into(),
            crd_version,
            revision: metadata.revision(),
            generation: metadata.generation,
            namespace: beta.then(|| metadata.namespace.as_str().into()),
            uid: metadata.uid.clone(),
            group: group.unwrap_or(GROUP).into(),
            version: spec.api_version.clone(),
            kind: spec.kind_ref.as_str().into(),
            plural: spec.plural_name.clone(),
            secret_refs: spec.secret_refs.clone().unwrap_or_default(),
            phase: status.phase,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
        }
    }

    /// Without a namespace for classes of v1, which are cluster-scoped.
    pub fn object_name(&self) -> NamespacedName {
        let (namespace, name) = self.name.split_once('/').unwrap_or(("", &self.name));
        NamespacedName::new(namespace, name)
    }

    /// `group/version` of its kind.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Whether both classes select the same streams.
    pub fn names_the_same_as(&self, other: &Class) -> bool {
        let of = |class: &Class| {
            let Class { group, version, kind, plural, namespace, .. } = class;
            (group.clone(), version.clone(), kind.clone(), plural.clone(), namespace.clone())
        };
        of(self) == of(other)
    }
}
