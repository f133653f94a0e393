//! Creates, patches and deletes objects.

use ::kubernetes::HttpRequest;
use serde_json::{Value, json};

use super::{Kubernetes, paths, read};
use crate::model::NamespacedName;
use crate::model::stream::MANAGER;
use crate::model::watch::ApiError;
use crate::ports::api_server::{ResourceKind, Response};

impl Kubernetes {
    pub async fn create(
        &self,
        kind: &ResourceKind,
        manifest: &Value,
    ) -> Result<Response, ApiError> {
        let namespace = manifest.pointer("/metadata/namespace").and_then(Value::as_str);
        let path = paths::of_kind(kind)?.path(namespace);
        let path = format!("{path}?fieldManager={MANAGER}");
        object(kind, &self.client.send(HttpRequest::create(path, manifest)).await?)
    }

    pub async fn patch(
        &self,
        kind: &ResourceKind,
        object_name: &NamespacedName,
        patch: &Value,
        status: bool,
    ) -> Result<Response, ApiError> {
        let path = paths::of_kind(kind)?.object(object_name);
        let part = if status { "/status" } else { "" };
        let path = format!("{path}{part}?fieldManager={MANAGER}");
        object(kind, &self.client.send(HttpRequest::merge_patch(path, patch)).await?)
    }

    pub async fn delete(
        &self,
        kind: &ResourceKind,
        object_name: &NamespacedName,
        uid: &str,
        foreground: bool,
    ) -> Result<Response, ApiError> {
        let path = paths::of_kind(kind)?.object(object_name);
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid },
            "propagationPolicy": if foreground { "Foreground" } else { "Background" },
        });
        let answer = self.client.send(HttpRequest::delete(path, &options)).await?;
        // The response is the object if it remains for a while, and a `Status` if it is gone.
        match serde_json::from_slice::<Value>(&answer) {
            Ok(said) if said["kind"] == "Status" => Ok(Response::Empty),
            _ => object(kind, &answer),
        }
    }
}

fn object(kind: &ResourceKind, answer: &[u8]) -> Result<Response, ApiError> {
    let unreadable = |error: String| ApiError::Unreachable(format!("invalid response: {error}"));
    let json = std::str::from_utf8(answer).map_err(|error| unreadable(error.to_string()))?;
    let object = read::response(kind, json).map_err(|error| unreadable(error.to_string()))?;
    Ok(object.map_or(Response::Empty, |object| Response::Object(object.into())))
}
