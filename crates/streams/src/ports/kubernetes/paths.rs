//! Where things are: the paths of the API server.

use std::fmt::Write as _;

use crate::cluster::{Refused, Watched, What};
use crate::model::class::Class;
use crate::model::{GROUP, Line, Place};

/// A collection: `/apis/batch/v1`, and `jobs`.
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

    /// Group, version and plural are what users wrote in a class.
    fn custom(group: &str, version: &str, plural: &str) -> Collection {
        let (group, version, plural) = (segment(group), segment(version), segment(plural));
        let crd = Some(format!("{plural}.{group}"));
        Collection { crd, ..Collection::of(&group, &version, &plural) }
    }

    fn streams(class: &Class) -> Result<Collection, Refused> {
        let fields = [("apiVersion", &class.version), ("pluralName", &class.plural)];
        for (field, value) in fields {
            if value.is_empty() {
                return Err(Refused::Invalid(format!(
                    "spec.{field} of the class {} is empty",
                    class.name
                )));
            }
        }
        Ok(Collection::custom(&class.group, &class.version, &class.plural))
    }

    pub fn watched(what: &Watched) -> Result<Collection, Refused> {
        Ok(match what {
            Watched::Classes(line) => Collection::classes(*line),
            Watched::Streams(class) => Collection::streams(class)?,
            Watched::Jobs => Collection::of("batch", "v1", "jobs"),
            Watched::Crons => Collection::of("batch", "v1", "cronjobs"),
            Watched::Requests => Collection::custom(GROUP, "v1", "backfillrequests"),
            Watched::Templates(line) => Collection::custom(GROUP, "v1", line.templates()),
            Watched::Secrets => Collection::of("", "v1", "secrets"),
        })
    }

    pub fn what(what: &What) -> Result<Collection, Refused> {
        Ok(match what {
            What::Class(line) => Collection::classes(*line),
            What::Stream(class) => Collection::streams(class)?,
            What::Job => Collection::of("batch", "v1", "jobs"),
            What::Cron => Collection::of("batch", "v1", "cronjobs"),
            What::Request => Collection::custom(GROUP, "v1", "backfillrequests"),
            What::Event => Collection::of("", "v1", "events"),
        })
    }

    fn classes(line: Line) -> Collection {
        match line {
            Line::V1 => Collection::custom(GROUP, "v1", "streamclasses"),
            Line::Beta => Collection::custom(GROUP, "v1beta1", "stream-classes"),
        }
    }

    pub fn crds() -> Collection {
        Collection::of("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    pub fn leases() -> Collection {
        Collection::of("coordination.k8s.io", "v1", "leases")
    }

    /// All of it, or what is in one namespace.
    pub fn path(&self, namespace: Option<&str>) -> String {
        match namespace.unwrap_or_default() {
            "" => format!("{}/{}", self.base, self.plural),
            namespace => {
                format!("{}/namespaces/{}/{}", self.base, segment(namespace), self.plural)
            }
        }
    }

    pub fn object(&self, place: &Place) -> String {
        format!("{}/{}", self.path(Some(&place.namespace)), segment(&place.name))
    }
}

/// Nothing in it can be taken for another part of a path or of a query.
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
