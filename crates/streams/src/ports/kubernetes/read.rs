//! Parses what the API server sends into the types of `model`.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::model::backfill_request::{BackfillRequest, RawBackfillRequest};
use crate::model::class::{Class, RawClass};
use crate::model::job::{CronJob, Job, RawCronJob, RawJob};
use crate::model::meta::{RawMeta, Revision};
use crate::model::stream::{RawStream, Stream};
use crate::model::template::{RawTemplate, Template};
use crate::model::watch::{Object, WatchEvent, WatchTarget};
use crate::model::{self, NamespacedName};
use crate::ports::api_server::ResourceKind;

/// A page of a list. Objects are parsed one at a time: an invalid one does not affect the others.
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
pub struct WatchLine<'a> {
    #[serde(rename = "type")]
    pub kind: &'a str,
    #[serde(borrow)]
    pub object: &'a RawValue,
}

/// A parsed object.
pub struct Decoded {
    /// The resource version as the API server wrote it.
    pub version: String,
    object_name: NamespacedName,
    uid: Box<str>,
    revision: Revision,
    /// None if the operator has no use for it.
    pub object: Option<Object>,
}

impl Decoded {
    fn new(metadata: &RawMeta) -> Decoded {
        Decoded {
            version: metadata.resource_version.clone(),
            object_name: metadata.object_name(),
            uid: metadata.uid.as_str().into(),
            revision: metadata.revision(),
            object: None,
        }
    }

    /// An object that is no longer of use counts as deleted.
    pub fn into_event(self) -> WatchEvent {
        match self.object {
            Some(object) => WatchEvent::Upserted(object.into()),
            None => WatchEvent::Deleted(self.object_name, self.uid, self.revision),
        }
    }

    pub fn into_deleted(self) -> WatchEvent {
        WatchEvent::Deleted(self.object_name, self.uid, self.revision)
    }
}

#[derive(Deserialize)]
struct Anything {
    metadata: RawMeta,
}

/// Returns none if it is not a Kubernetes object.
pub fn metadata(json: &str) -> Option<Decoded> {
    let anything: Anything = serde_json::from_str(json).ok()?;
    Some(Decoded::new(&anything.metadata))
}

/// Parses a watched object. One that cannot be parsed is logged and ignored.
pub fn decode_watched(target: &WatchTarget, json: &str) -> Option<Decoded> {
    let decoded = match target {
        WatchTarget::Classes(crd_version) => class(json, *crd_version),
        WatchTarget::Streams(class) => stream(json, class),
        WatchTarget::Jobs => job(json),
        WatchTarget::CronJobs => cron_job(json),
        WatchTarget::BackfillRequests => request(json),
        WatchTarget::Templates(crd_version) => read(
            json,
            |raw: &RawTemplate| &raw.metadata,
            |raw| Some(Object::Template(Template::of(raw, *crd_version))),
        ),
        WatchTarget::Secrets => read(
            json,
            |raw: &Anything| &raw.metadata,
            |raw| Some(Object::Secret(raw.metadata.object_name(), raw.metadata.revision())),
        ),
    };
    decoded
        .inspect_err(|error| {
            let named =
                metadata(json).map(|decoded| decoded.object_name.to_string()).unwrap_or_default();
            tracing::warn!(object = named, %error, "ignoring an object that cannot be parsed");
        })
        .ok()
        .or_else(|| metadata(json))
}

/// Parses the response to a request.
pub fn decode_response(
    kind: &ResourceKind,
    json: &str,
) -> Result<Option<Object>, serde_json::Error> {
    let decoded = match kind {
        ResourceKind::Class(crd_version) => class(json, *crd_version),
        ResourceKind::Stream(class) => stream(json, class),
        ResourceKind::Job => job(json),
        ResourceKind::CronJob => cron_job(json),
        ResourceKind::BackfillRequest => request(json),
        ResourceKind::Event => return Ok(None),
    };
    decoded.map(|decoded| decoded.object)
}

fn read<R: DeserializeOwned>(
    json: &str,
    metadata: impl FnOnce(&R) -> &RawMeta,
    kept: impl FnOnce(R) -> Option<Object>,
) -> serde_json::Result<Decoded> {
    let raw: R = serde_json::from_str(json)?;
    let decoded = Decoded::new(metadata(&raw));
    Ok(Decoded { object: kept(raw), ..decoded })
}

fn class(json: &str, crd_version: model::CrdVersion) -> serde_json::Result<Decoded> {
    let kept = |raw| Some(Object::Class(Class::of(raw, crd_version)));
    read(json, |raw: &RawClass| &raw.metadata, kept)
}

fn stream(json: &str, class: &Class) -> serde_json::Result<Decoded> {
    let kept = |raw| Some(Object::Stream(Stream::of(raw, class)));
    read(json, |raw: &RawStream| &raw.metadata, kept)
}

fn job(json: &str) -> serde_json::Result<Decoded> {
    read(json, |raw: &RawJob| &raw.metadata, |raw| Job::of(raw).map(Object::Job))
}

fn cron_job(json: &str) -> serde_json::Result<Decoded> {
    read(json, |raw: &RawCronJob| &raw.metadata, |raw| CronJob::of(raw).map(Object::CronJob))
}

fn request(json: &str) -> serde_json::Result<Decoded> {
    read(
        json,
        |raw: &RawBackfillRequest| &raw.metadata,
        |raw| Some(Object::BackfillRequest(BackfillRequest::of(raw))),
    )
}
