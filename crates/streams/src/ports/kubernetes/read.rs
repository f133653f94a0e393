//! Parses what the API server sends into the types of `model`.

use ::kubernetes::{Decoded, ObjectMeta};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::model::backfill_request::{BackfillRequest, RawBackfillRequest};
use crate::model::class::{Class, RawClass};
use crate::model::job::{CronJob, Job, RawCronJob, RawJob};
use crate::model::meta::{RawMeta, Revision};
use crate::model::stream::{RawStream, Stream};
use crate::model::template::{RawTemplate, Template};
use crate::model::watch::{Object, WatchTarget};
use crate::model::{self, NamespacedName};
use crate::ports::api_server::ResourceKind;

#[derive(Deserialize)]
struct Anything {
    metadata: RawMeta,
}

/// Parses a watched object.
pub fn watched(target: &WatchTarget, json: &str) -> serde_json::Result<Decoded<Object>> {
    match target {
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
    }
}

/// Parses the response to a request.
pub fn response(kind: &ResourceKind, json: &str) -> serde_json::Result<Option<Object>> {
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
) -> serde_json::Result<Decoded<Object>> {
    let raw: R = serde_json::from_str(json)?;
    let RawMeta { name, namespace, uid, resource_version, .. } = metadata(&raw);
    let metadata = ObjectMeta {
        name: name.clone(),
        namespace: namespace.clone(),
        uid: uid.clone(),
        resource_version: resource_version.clone(),
    };
    Ok(Decoded { metadata, object: kept(raw) })
}

fn class(json: &str, crd_version: model::CrdVersion) -> serde_json::Result<Decoded<Object>> {
    let kept = |raw| Some(Object::Class(Class::of(raw, crd_version)));
    read(json, |raw: &RawClass| &raw.metadata, kept)
}

fn stream(json: &str, class: &Class) -> serde_json::Result<Decoded<Object>> {
    let kept = |raw| Some(Object::Stream(Stream::of(raw, class)));
    read(json, |raw: &RawStream| &raw.metadata, kept)
}

fn job(json: &str) -> serde_json::Result<Decoded<Object>> {
    read(json, |raw: &RawJob| &raw.metadata, |raw| Job::of(raw).map(Object::Job))
}

fn cron_job(json: &str) -> serde_json::Result<Decoded<Object>> {
    read(json, |raw: &RawCronJob| &raw.metadata, |raw| CronJob::of(raw).map(Object::CronJob))
}

fn request(json: &str) -> serde_json::Result<Decoded<Object>> {
    read(
        json,
        |raw: &RawBackfillRequest| &raw.metadata,
        |raw| Some(Object::BackfillRequest(BackfillRequest::of(raw))),
    )
}

/// The name, uid and revision of an object.
pub fn identity(object: &Object) -> (NamespacedName, Box<str>, Revision) {
    match object {
        Object::Class(class) => {
            let name = class.name.rsplit('/').next().unwrap_or_default();
            let namespace = class.namespace.as_deref().unwrap_or_default();
            (NamespacedName::new(namespace, name), class.uid.as_str().into(), class.revision)
        }
        Object::Stream(stream) => {
            (stream.object_name().clone(), stream.uid.clone(), stream.revision)
        }
        Object::Job(job) => (job.object_name.clone(), job.uid.clone(), job.revision),
        Object::CronJob(cron_job) => {
            (cron_job.object_name.clone(), cron_job.uid.clone(), cron_job.revision)
        }
        Object::BackfillRequest(request) => {
            (request.object_name.clone(), request.uid.as_str().into(), request.revision)
        }
        Object::Template(template) => (template.object_name.clone(), "".into(), template.revision),
        Object::Secret(object_name, revision) => (object_name.clone(), "".into(), *revision),
    }
}
