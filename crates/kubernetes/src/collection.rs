//! The URL paths of the API server.

use std::fmt::Write as _;

use crate::NamespacedName;

/// A collection, such as `/apis/batch/v1` and `jobs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    pub(crate) base: String,
    pub(crate) plural: String,
    /// Its objects are in namespaces.
    pub(crate) namespaced: bool,
    /// The name of its CRD, if it has one.
    pub(crate) crd: Option<String>,
}

/// The path of a version of an API group.
pub(crate) fn group_path(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

impl Collection {
    pub fn new(group: &str, version: &str, plural: &str) -> Collection {
        let base = group_path(group, version);
        Collection { base, plural: plural.into(), namespaced: true, crd: None }
    }

    /// A collection of custom resources, whose group, version and plural may come from users.
    pub fn custom(group: &str, version: &str, plural: &str) -> Collection {
        let (group, version, plural) = (segment(group), segment(version), segment(plural));
        let crd = Some(format!("{plural}.{group}"));
        Collection { crd, ..Collection::new(&group, &version, &plural) }
    }

    pub fn crds() -> Collection {
        Collection::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    pub fn leases() -> Collection {
        Collection::new("coordination.k8s.io", "v1", "leases")
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
        let namespace = self.namespaced.then_some(&*object_name.namespace);
        format!("{}/{}", self.path(namespace), segment(&object_name.name))
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
