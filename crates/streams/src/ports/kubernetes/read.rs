//! Parses what the API server sends into the types of `model`.

use ::kubernetes::Decoded;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::model::backfill_request::BackfillRequest;
use crate::model::class::Class;
use crate::model::job::{CronJob, Job};
use crate::model::meta::Raw;
use crate::model::stream::Stream;
use crate::model::template::Template;
use crate::model::watch::{ApiError, Object, Resource};
use crate::ports::api_server::Response;

/// Parses an object of a resource.
pub fn object(resource: &Resource, json: &str) -> serde_json::Result<Decoded<Object>> {
    match resource {
        Resource::Classes(version) => {
            read(json, |raw| Some(Object::Class(Class::of(raw, *version))))
        }
        Resource::Streams(class) => read(json, |raw| Some(Object::Stream(Stream::of(raw, class)))),
        Resource::Jobs => read(json, |raw| Job::of(raw).map(Object::Job)),
        Resource::CronJobs => read(json, |raw| CronJob::of(raw).map(Object::CronJob)),
        Resource::BackfillRequests => {
            read(json, |raw| Some(Object::BackfillRequest(BackfillRequest::of(raw))))
        }
        Resource::Templates(version) => {
            read(json, |raw| Some(Object::Template(Template::of(raw, *version))))
        }
        Resource::Secrets => read(json, |Raw { metadata, .. }: &Raw<IgnoredAny, IgnoredAny>| {
            Some(Object::Secret(metadata.object_name(), metadata.revision()))
        }),
        Resource::Events => read(json, |_: &Raw<IgnoredAny, IgnoredAny>| None),
    }
}

/// Parses the response to a request.
pub fn response(resource: &Resource, body: &[u8]) -> Result<Response, ApiError> {
    let invalid = |error: String| ApiError::Unreachable(format!("invalid response: {error}"));
    let json = std::str::from_utf8(body).map_err(|error| invalid(error.to_string()))?;
    let decoded = object(resource, json).map_err(|error| invalid(error.to_string()))?;
    Ok(decoded.object.map_or(Response::Empty, |object| Response::Object(object.into())))
}

fn read<S: DeserializeOwned + Default, T: DeserializeOwned + Default>(
    json: &str,
    kept: impl FnOnce(&Raw<S, T>) -> Option<Object>,
) -> serde_json::Result<Decoded<Object>> {
    let raw: Raw<S, T> = serde_json::from_str(json)?;
    Ok(Decoded { object: kept(&raw), metadata: raw.metadata })
}
