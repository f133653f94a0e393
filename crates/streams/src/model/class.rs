//! A StreamClass: names a kind of streams.

use std::sync::Arc;

use serde::Deserialize;

use super::meta::{Condition, RawMeta, Revision};
use super::{ClassName, CrdVersion, GROUP};

#[derive(Debug, Clone, Deserialize)]
pub struct RawClass {
    pub metadata: RawMeta,
    #[serde(default)]
    pub spec: RawSpec,
    #[serde(default)]
    pub status: Option<RawStatus>,
}

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
    pub fn of(raw: RawClass, crd_version: CrdVersion) -> Class {
        let RawClass { metadata, spec, status } = raw;
        let beta = crd_version == CrdVersion::V1Beta1;
        let name = if beta {
            format!("{}/{}", metadata.namespace, metadata.name)
        } else {
            metadata.name.clone()
        };
        let status = status.unwrap_or_default();
        let condition = status.conditions.into_iter().next().unwrap_or_default();
        Class {
            name: name.into(),
            crd_version,
            revision: metadata.revision(),
            generation: metadata.generation,
            namespace: beta.then(|| metadata.namespace.as_str().into()),
            uid: metadata.uid,
            group: spec.api_group_ref.filter(|group| !group.is_empty()).unwrap_or(GROUP.into()),
            version: spec.api_version,
            kind: spec.kind_ref.into(),
            plural: spec.plural_name,
            secret_refs: spec.secret_refs.unwrap_or_default(),
            phase: status.phase,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
        }
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
