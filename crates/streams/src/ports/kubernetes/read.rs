//! From what the API server sends to what is kept of it.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::cluster::{Object, Told, Watched, What};
use crate::model::class::{Class, RawClass};
use crate::model::job::{Cron, Job, RawCron, RawJob};
use crate::model::meta::{RawMeta, Revision};
use crate::model::request::{RawRequest, Request};
use crate::model::stream::{RawStream, Stream};
use crate::model::template::{RawTemplate, Template};
use crate::model::{self, Place};

/// A page of a list. Its objects are read one at a time: one that is odd spoils no other.
#[derive(Deserialize)]
pub struct Page<'a> {
    pub metadata: PageMeta,
    #[serde(borrow, default)]
    pub items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PageMeta {
    pub resource_version: String,
    #[serde(rename = "continue")]
    pub next: String,
}

/// A line of a watch.
#[derive(Deserialize)]
pub struct Line<'a> {
    #[serde(rename = "type")]
    pub kind: &'a str,
    #[serde(borrow)]
    pub object: &'a RawValue,
}

/// One object.
pub struct Seen {
    /// As the API server writes it.
    pub version: String,
    place: Place,
    uid: Box<str>,
    revision: Revision,
    /// None if it is nothing to us.
    pub object: Option<Object>,
}

impl Seen {
    fn new(metadata: &RawMeta) -> Seen {
        Seen {
            version: metadata.resource_version.clone(),
            place: metadata.place(),
            uid: metadata.uid.as_str().into(),
            revision: metadata.revision(),
            object: None,
        }
    }

    /// What was ours and is no more is gone.
    pub fn told(self) -> Told {
        match self.object {
            Some(object) => Told::Is(object.into()),
            None => Told::Gone(self.place, self.uid, self.revision),
        }
    }

    pub fn gone(self) -> Told {
        Told::Gone(self.place, self.uid, self.revision)
    }
}

#[derive(Deserialize)]
struct Anything {
    metadata: RawMeta,
}

/// Nothing, if it is not even an object of Kubernetes.
pub fn metadata(json: &str) -> Option<Seen> {
    let anything: Anything = serde_json::from_str(json).ok()?;
    Some(Seen::new(&anything.metadata))
}

/// An object that cannot be read is as good as none: its owner sees that nothing is done with it.
pub fn watched(what: &Watched, json: &str) -> Option<Seen> {
    let seen = match what {
        Watched::Classes(line) => class(json, *line),
        Watched::Streams(class) => stream(json, class),
        Watched::Jobs => job(json),
        Watched::Crons => cron(json),
        Watched::Requests => request(json),
        Watched::Templates(line) => read(
            json,
            |raw: &RawTemplate| &raw.metadata,
            |raw| Some(Object::Template(Template::of(raw, *line))),
        ),
        Watched::Secrets => read(
            json,
            |raw: &Anything| &raw.metadata,
            |raw| Some(Object::Secret(raw.metadata.place(), raw.metadata.revision())),
        ),
    };
    seen.inspect_err(|error| {
        let named = metadata(json).map(|seen| seen.place.to_string()).unwrap_or_default();
        tracing::warn!(object = named, %error, "an object cannot be read");
    })
    .ok()
    .or_else(|| metadata(json))
}

/// What answered one of our requests.
pub fn answered(what: &What, json: &str) -> Result<Option<Object>, serde_json::Error> {
    let seen = match what {
        What::Class(line) => class(json, *line),
        What::Stream(class) => stream(json, class),
        What::Job => job(json),
        What::Cron => cron(json),
        What::Request => request(json),
        What::Event => return Ok(None),
    };
    seen.map(|seen| seen.object)
}

fn read<R: DeserializeOwned>(
    json: &str,
    metadata: impl FnOnce(&R) -> &RawMeta,
    kept: impl FnOnce(R) -> Option<Object>,
) -> serde_json::Result<Seen> {
    let raw: R = serde_json::from_str(json)?;
    let seen = Seen::new(metadata(&raw));
    Ok(Seen { object: kept(raw), ..seen })
}

fn class(json: &str, line: model::Line) -> serde_json::Result<Seen> {
    let kept = |raw| Some(Object::Class(Class::of(raw, line)));
    read(json, |raw: &RawClass| &raw.metadata, kept)
}

fn stream(json: &str, class: &Class) -> serde_json::Result<Seen> {
    let kept = |raw| Some(Object::Stream(Stream::of(raw, class)));
    read(json, |raw: &RawStream| &raw.metadata, kept)
}

fn job(json: &str) -> serde_json::Result<Seen> {
    read(json, |raw: &RawJob| &raw.metadata, |raw| Job::of(raw).map(Object::Job))
}

fn cron(json: &str) -> serde_json::Result<Seen> {
    read(json, |raw: &RawCron| &raw.metadata, |raw| Cron::of(raw).map(Object::Cron))
}

fn request(json: &str) -> serde_json::Result<Seen> {
    read(json, |raw: &RawRequest| &raw.metadata, |raw| Some(Object::Request(Request::of(raw))))
}
