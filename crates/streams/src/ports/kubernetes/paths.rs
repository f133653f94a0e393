//! The URL paths of the API server.

use std::fmt::Write as _;

use crate::model::class::Class;
use crate::model::watch::{ApiError, WatchTarget};
use crate::model::{CrdVersion, GROUP, NamespacedName};
use crate::ports::api_server::ResourceKind;

/// A collection, such as `/apis/batch/v1` and `jobs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    base: String,
    plural: String,
    /// The name of its CRD, if it has one.
    pub crd: Option<String>,
}

impl Collection {
    fn of(group: &str, version: &str, plural: &str) -> Collection {
        let base = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        Collection { base, plural: plural.into(), crd: None }
    }

    /// Group, version and plural come from users, in a class.
    fn custom(group: &str, version: &str, plural: &str) -> Collection {
        let (group, version, plural) = (segment(group), segment(version), segment(plural));
        let crd = Some(format!("{plural}.{group}"));
        Collection { crd, ..Collection::of(&group, &version, &plural) }
    }

    fn streams(class: &Class) -> Result<Collection, ApiError> {
        let fields = [("apiVersion", &class.version), ("pluralName", &class.plural)];
        for (field, value) in fields {
            if value.is_empty() {
                return Err(ApiError::Invalid(format!(
                    "spec.{field} of the class {} is empty",
                    class.name
                )));
            }
        }
        Ok(Collection::custom(&class.group, &class.version, &class.plural))
    }

    pub fn of_target(target: &WatchTarget) -> Result<Collection, ApiError> {
        Ok(match target {
            WatchTarget::Classes(crd_version) => Collection::classes(*crd_version),
            WatchTarget::Streams(class) => Collection::streams(class)?,
            WatchTarget::Jobs => Collection::of("batch", "v1", "jobs"),
            WatchTarget::CronJobs => Collection::of("batch", "v1", "cronjobs"),
            WatchTarget::BackfillRequests => Collection::custom(GROUP, "v1", "backfillrequests"),
            WatchTarget::Templates(crd_version) => {
                Collection::custom(GROUP, "v1", crd_version.templates())
            }
            WatchTarget::Secrets => Collection::of("", "v1", "secrets"),
        })
    }

    pub fn of_kind(kind: &ResourceKind) -> Result<Collection, ApiError> {
        Ok(match kind {
            ResourceKind::Class(crd_version) => Collection::classes(*crd_version),
            ResourceKind::Stream(class) => Collection::streams(class)?,
            ResourceKind::Job => Collection::of("batch", "v1", "jobs"),
            ResourceKind::CronJob => Collection::of("batch", "v1", "cronjobs"),
            ResourceKind::BackfillRequest => Collection::custom(GROUP, "v1", "backfillrequests"),
            ResourceKind::Event => Collection::of("", "v1", "events"),
        })
    }

    fn classes(crd_version: CrdVersion) -> Collection {
        match crd_version {
            CrdVersion::V1 => Collection::custom(GROUP, "v1", "streamclasses"),
            CrdVersion::V1Beta1 => Collection::custom(GROUP, "v1beta1", "stream-classes"),
        }
    }

    pub fn crds() -> Collection {
        Collection::of("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    pub fn leases() -> Collection {
        Collection::of("coordination.k8s.io", "v1", "leases")
    }

    /// The path of all objects, or of those in one namespace.
    pub fn path(&self, namespace: Option<&str>) -> String {
        match namespace.unwrap_or_default() {
            "" => format!("{}/{}", self.base, self.plural),
            namespace => {
                format!("{}/namespaces/{}/{}", self.base, segment(namespace), self.plural)
            }
        }
    }

    pub fn object(&self, object_name: &NamespacedName) -> String {
        format!("{}/{}", self.path(Some(&object_name.namespace)), segment(&object_name.name))
    }
}

/// Escapes a path segment, so that it cannot change the path or the query.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    let dots = text.bytes().all(|byte| byte == b'.');
    for byte in text.bytes() {
        match byte {
            b'.' if dots => encoded.push_str("%2E"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => {
                encoded.push(char::from(byte));
            }
            byte => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_wrote_in_a_class_leads_nowhere_else() {
        let collection = Collection::custom("a/../b", "..", "secrets?limit=1#");
        assert_eq!(
            collection.path(Some("x y")),
            "/apis/a%2F..%2Fb/%2E%2E/namespaces/x%20y/secrets%3Flimit%3D1%23"
        );
    }
}
