//! Finds streams through their classes: all of them, or one by name.

use futures::StreamExt as _;
use kernel::{Error, Result};
use serde_json::Value;

use super::Client;
use crate::model::class::{Class, RawClass};
use crate::model::stream::{RawStream, Stream};
use crate::model::watch::Resource;
use crate::model::{CrdVersion, GROUP, NamespacedName};
use crate::ports::kubernetes::paths;

/// Concurrent lists: enough to be fast, and few enough for the API server.
const CONCURRENT_LISTS: usize = 8;

/// Where to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Everywhere,
    Namespace(String),
}

/// A stream, as JSON and parsed.
#[derive(Debug, Clone)]
pub struct FoundStream {
    pub class: Class,
    /// Whether a StreamClass names its kind. Otherwise no operator manages it.
    pub has_class: bool,
    pub raw: Value,
    pub stream: Stream,
}

impl FoundStream {
    fn of(class: &Class, has_class: bool, raw: Value) -> Result<FoundStream> {
        let read: RawStream = serde_json::from_value(raw.clone()).map_err(|error| {
            Error::invalid(&*class.kind, format!("cannot be understood: {error}"))
        })?;
        Ok(FoundStream { class: class.clone(), has_class, stream: Stream::of(&read, class), raw })
    }

    pub fn object_name(&self) -> &NamespacedName {
        self.stream.object_name()
    }

    pub fn path(&self) -> String {
        paths::streams(&self.class).object(self.object_name())
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.raw["metadata"]["labels"][name].as_str()
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.raw["metadata"]["annotations"][name].as_str()
    }
}

/// Whether the streams of a class could be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassAccess {
    Readable,
    /// The API server does not serve its kind: the CRD is missing.
    NotServed,
    /// With the message of Kubernetes.
    Forbidden(String),
}

/// Streams, and which classes could be listed.
#[derive(Debug, Default)]
pub struct Listing {
    pub streams: Vec<FoundStream>,
    pub classes: Vec<(Class, ClassAccess)>,
    /// Objects that cannot be parsed as a stream, and why.
    pub unreadable: Vec<String>,
}

impl Client {
    /// The classes of both CRD versions, by name.
    pub async fn classes(&self) -> Result<Vec<Class>> {
        let mut classes = Vec::new();
        for crd_version in [CrdVersion::V1, CrdVersion::V1Beta1] {
            let path = paths::collection(&Resource::Classes(crd_version)).path(None);
            for raw in self.list(&path, "").await?.unwrap_or_default() {
                let read = serde_json::from_value::<RawClass>(raw);
                classes.extend(read.ok().map(|raw| Class::of(&raw, crd_version)));
            }
        }
        classes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(classes)
    }

    /// Lists the streams of the classes that `only` accepts.
    pub async fn streams(
        &self,
        scope: &Scope,
        only: &(dyn Fn(&Class) -> bool + Sync),
        selector: &str,
    ) -> Result<Listing> {
        let wanted: Vec<Class> = self.classes().await?.into_iter().filter(|c| only(c)).collect();
        let asked = wanted.into_iter().map(|class| async move {
            let listed = self.of_class(&class, scope, selector).await;
            (class, listed)
        });
        let answers: Vec<_> =
            futures::stream::iter(asked).buffered(CONCURRENT_LISTS).collect().await;
        let mut listing = Listing::default();
        let mut known = std::collections::HashSet::new();
        for (class, answer) in answers {
            let (raws, access) = match answer {
                Ok(Some(raws)) => (raws, ClassAccess::Readable),
                Ok(None) => (Vec::new(), ClassAccess::NotServed),
                Err(Error::Forbidden(said)) => (Vec::new(), ClassAccess::Forbidden(said)),
                Err(error) => return Err(error),
            };
            for raw in raws {
                match FoundStream::of(&class, true, raw) {
                    // If two classes name the same kind, the first one counts.
                    Ok(found) if !known.insert(found.stream.uid.clone()) => {}
                    Ok(found) => listing.streams.push(found),
                    Err(error) => listing.unreadable.push(error.to_string()),
                }
            }
            listing.classes.push((class, access));
        }
        listing.streams.sort_by(|a, b| a.stream.key.object_name.cmp(&b.stream.key.object_name));
        Ok(listing)
    }

    async fn of_class(
        &self,
        class: &Class,
        scope: &Scope,
        selector: &str,
    ) -> Result<Option<Vec<Value>>> {
        let namespace = match (scope, &class.namespace) {
            (Scope::Namespace(wanted), Some(of)) if **of != **wanted => {
                return Ok(Some(Vec::new()));
            }
            (Scope::Namespace(wanted), _) => Some(wanted.as_str()),
            (Scope::Everywhere, of) => of.as_deref(),
        };
        self.list(&paths::streams(class).path(namespace), selector).await
    }

    /// Finds one stream by `NAME`, or by `KIND/NAME` or `CLASS/NAME` if the name is ambiguous.
    pub async fn stream(&self, scope: &Scope, wanted: &str) -> Result<FoundStream> {
        let wanted = StreamQuery::parse(wanted)?;
        let selector = format!("&fieldSelector=metadata.name%3D{}", wanted.name);
        let mut listing = self.streams(scope, &|class| wanted.matches(class), &selector).await?;
        if listing.streams.is_empty() {
            listing.streams = self.unclassed_streams(scope, &wanted, &selector).await?;
        }
        match (listing.streams.len(), listing.streams.pop()) {
            (1, Some(found)) => Ok(found),
            (_, Some(last)) => {
                listing.streams.push(last);
                Err(wanted.ambiguous(&listing.streams))
            }
            (_, None) => Err(wanted.missing(scope, &listing)),
        }
    }

    /// Reads a stream again; none if it is gone.
    pub async fn reload(&self, found: &FoundStream) -> Result<Option<FoundStream>> {
        let raw = self.get(&found.path()).await?;
        raw.map(|raw| FoundStream::of(&found.class, found.has_class, raw)).transpose()
    }

    /// Streams of kinds in the group that no class names. They never run, so users ask about them.
    async fn unclassed_streams(
        &self,
        scope: &Scope,
        wanted: &StreamQuery,
        selector: &str,
    ) -> Result<Vec<FoundStream>> {
        let named = self.classes().await?;
        let group = self.get(&format!("/apis/{GROUP}")).await?.unwrap_or_default();
        let mut found = Vec::new();
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = version["version"].as_str().unwrap_or_default();
            let served = self.get(&format!("/apis/{GROUP}/{version}")).await?.unwrap_or_default();
            for resource in served["resources"].as_array().into_iter().flatten() {
                let Some(class) = unnamed(resource, version, &named) else { continue };
                if !wanted.matches(&class) {
                    continue;
                }
                let raws = self.of_class(&class, scope, selector).await?.unwrap_or_default();
                let read =
                    raws.into_iter().filter_map(|raw| FoundStream::of(&class, false, raw).ok());
                found.extend(read);
            }
        }
        Ok(found)
    }
}

/// A placeholder class for a kind that no class names.
fn unnamed(resource: &Value, version: &str, named: &[Class]) -> Option<Class> {
    const OURS: [&str; 3] = ["StreamClass", "StreamingJobTemplate", "BackfillRequest"];
    let (plural, kind) = (resource["name"].as_str()?, resource["kind"].as_str()?);
    let spoken_for = OURS.contains(&kind) || named.iter().any(|class| *class.kind == *kind);
    if plural.contains('/') || resource["namespaced"] != true || spoken_for {
        return None;
    }
    let spec = serde_json::json!({ "metadata": {}, "spec": {
        "apiVersion": version, "kindRef": kind, "pluralName": plural,
    } });
    serde_json::from_value::<RawClass>(spec).ok().map(|raw| Class::of(&raw, CrdVersion::V1))
}

struct StreamQuery {
    /// A class or a kind, in lower case.
    of: Option<String>,
    name: String,
}

impl StreamQuery {
    fn parse(text: &str) -> Result<StreamQuery> {
        let (of, name) = match text.rsplit_once('/') {
            Some((of, name)) => (Some(of.to_lowercase()), name),
            None => (None, text),
        };
        let plain = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-./".contains(c))
        };
        if !plain(name) || !of.as_deref().is_none_or(plain) {
            let message = "must be NAME, KIND/NAME or CLASS/NAME; a name has small letters, digits, '-' and '.'";
            return Err(Error::invalid("stream", message));
        }
        Ok(StreamQuery { of, name: name.into() })
    }

    fn matches(&self, class: &Class) -> bool {
        self.of.as_deref().is_none_or(|of| is_called(class, of))
    }

    fn ambiguous(&self, found: &[FoundStream]) -> Error {
        let each = found.iter().map(|found| {
            let object_name = found.object_name();
            format!(
                "  {}/{} in namespace {}",
                found.class.kind, object_name.name, object_name.namespace
            )
        });
        let each = each.collect::<Vec<_>>().join("\n");
        let name = &self.name;
        Error::invalid(
            "stream",
            format!(
                "there are several called {name}; name the kind, or the namespace with -n:\n{each}"
            ),
        )
    }

    fn missing(&self, scope: &Scope, listing: &Listing) -> Error {
        let within = match scope {
            Scope::Everywhere => "any namespace".to_owned(),
            Scope::Namespace(name) => format!("namespace {name}"),
        };
        let what = match &self.of {
            Some(of) => format!("the stream {of}/{} in {within}", self.name),
            None => format!("the stream {} in {within}", self.name),
        };
        let mut hints: Vec<String> = listing.classes.iter().filter_map(access_problem).collect();
        if listing.classes.is_empty() {
            hints.push(match &self.of {
                Some(of) => format!("no StreamClass is called {of} or names such a kind"),
                None => "there is no StreamClass, so nothing is known to be a stream".into(),
            });
        }
        let hints: String = hints.iter().map(|hint| format!("\n  {hint}")).collect();
        let because = if hints.is_empty() { "" } else { ":" };
        let message = format!("{what} does not exist{because}{hints}");
        Error::coded(0, kernel::Class::NotFound, message)
    }
}

/// Whether a class has this name, kind or plural.
pub fn is_called(class: &Class, name: &str) -> bool {
    let name = name.to_lowercase();
    let short = class.name.rsplit('/').next().unwrap_or_default();
    [&*class.name, short, &class.kind, &class.plural]
        .iter()
        .any(|called| called.to_lowercase() == name)
}

/// Why the streams of a class could not be listed.
pub fn access_problem((class, access): &(Class, ClassAccess)) -> Option<String> {
    let Class { name, kind, plural, group, version, .. } = class;
    match access {
        ClassAccess::Readable => None,
        ClassAccess::NotServed => Some(format!(
            "the class {name} names {kind}, but the API server does not serve {plural}.{group} in \
             version {version}: its CRD is not installed"
        )),
        ClassAccess::Forbidden(said) => Some(format!("the class {name}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, kind: &str, plural: &str) -> Class {
        let raw = json!({ "metadata": { "name": name }, "spec": {
            "apiVersion": "v1", "kindRef": kind, "pluralName": plural,
        } });
        Class::of(&serde_json::from_value(raw).unwrap(), CrdVersion::V1)
    }

    #[test]
    fn a_stream_is_named_alone_or_with_its_kind_class_or_plural() {
        let class = class("parquet-stream", "ParquetStream", "parquet-streams");
        for (text, matches) in [
            ("orders", true),
            ("ParquetStream/orders", true),
            ("parquetstream/orders", true),
            ("parquet-stream/orders", true),
            ("parquet-streams/orders", true),
            ("JsonStream/orders", false),
        ] {
            let wanted = StreamQuery::parse(text).unwrap();
            assert_eq!(
                (wanted.matches(&class), wanted.name.as_str()),
                (matches, "orders"),
                "{text}"
            );
        }
        for bad in ["", "a b", "kind/", "a?x=1", "../x y", "a%2f"] {
            assert!(StreamQuery::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_kind_that_no_class_names_can_still_be_asked_about() {
        let named = [class("parquet-stream", "ParquetStream", "parquet-streams")];
        let resource =
            |name: &str, kind: &str| json!({ "name": name, "kind": kind, "namespaced": true });
        let of = |name: &str, kind: &str| unnamed(&resource(name, kind), "v1", &named);
        assert_eq!(of("json-streams", "JsonStream").map(|c| c.plural), Some("json-streams".into()));
        for (name, kind) in [
            ("json-streams/status", "JsonStream"),
            ("parquet-streams", "ParquetStream"),
            ("backfillrequests", "BackfillRequest"),
        ] {
            assert_eq!(of(name, kind), None, "{name}");
        }
    }

    #[test]
    fn a_missing_stream_says_which_classes_could_not_be_looked_at() {
        let listing = Listing {
            classes: vec![(class("p", "ParquetStream", "parquet-streams"), ClassAccess::NotServed)],
            ..Listing::default()
        };
        let scope = Scope::Namespace("prod".into());
        let said = StreamQuery::parse("orders").unwrap().missing(&scope, &listing).to_string();
        for part in ["orders", "prod", "ParquetStream", "parquet-streams", "CRD is not installed"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
