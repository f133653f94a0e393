//! Objects of any kind, as JSON: applies, reads, deletes and watches them.

use futures::stream::BoxStream;
use kernel::outbound::Delivery;
use kernel::{Error, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    Client, Decoded, HttpError, HttpRequest, ListOptions, ObjectMeta, ObjectRef, WatchEvent,
};

/// How an object is applied.
#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions<'a> {
    /// The owner of the fields that are applied.
    pub field_manager: &'a str,
    /// Take fields that others own. Otherwise they are a conflict.
    pub force: bool,
    /// Change nothing: only find out whether it could be applied.
    pub dry_run: bool,
}

impl Default for ApplyOptions<'_> {
    fn default() -> Self {
        ApplyOptions { field_manager: "mainstay", force: true, dry_run: false }
    }
}

impl Client {
    /// Creates or updates an object by server-side apply: fields of others stay theirs, ours become
    /// ours again.
    pub async fn apply(&self, object: &Value) -> Result<Value> {
        self.apply_with(object, ApplyOptions::default()).await
    }

    pub async fn apply_with(&self, object: &Value, options: ApplyOptions<'_>) -> Result<Value> {
        let name = ObjectRef::from_manifest(object)?;
        let path = self.collection(&name).await?.object(&name.object_name());
        let ApplyOptions { field_manager, force, dry_run } = options;
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        let path = format!("{path}?fieldManager={field_manager}&force={force}{dry_run}");
        let applied = self.json(HttpRequest::apply(path, object)).await;
        applied.map_err(|error| match &error {
            // It will not pass by itself.
            HttpError::Response(response) if response.code == 409 && !force => {
                Error::Conflict(format!("{name}: {response}"))
            }
            _ => failed(&name.to_string(), error),
        })
    }

    pub async fn get(&self, name: &ObjectRef) -> Result<Option<Value>> {
        let path = self.collection(name).await?.object(&name.object_name());
        self.json_if_found(name, HttpRequest::get(path)).await
    }

    /// Returns whether the object existed.
    pub async fn delete(&self, name: &ObjectRef) -> Result<bool> {
        let path = self.collection(name).await?.object(&name.object_name());
        let options = json!({ "propagationPolicy": "Background" });
        let deleted = self.json_if_found(name, HttpRequest::delete(path, &options)).await?;
        Ok(deleted.is_some())
    }

    /// Watches the objects of a kind that have the labels, in all namespaces. Managed fields, the
    /// longest part of an object, are left out.
    pub async fn watch_kind(
        &self,
        of: &ObjectRef,
        label_selector: &str,
    ) -> Result<BoxStream<'static, WatchEvent<Value>>> {
        let collection = self.collection(of).await?;
        let (api_version, kind) = (of.api_version.clone(), of.kind.clone());
        let label_selector = Some(label_selector.to_owned());
        let options = ListOptions { label_selector, ..ListOptions::default() };
        Ok(self.watch(collection, options, move |json| {
            let mut object: Value = serde_json::from_str(json)?;
            // The items of a list do not name their kind.
            object["apiVersion"] = api_version.as_str().into();
            object["kind"] = kind.as_str().into();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            let metadata = ObjectMeta::deserialize(&object["metadata"])?;
            Ok(Decoded { metadata, object: Some(object) })
        }))
    }

    async fn json_if_found(&self, name: &ObjectRef, request: HttpRequest) -> Result<Option<Value>> {
        match self.json(request).await {
            Err(HttpError::Response(response)) if response.code == 404 => Ok(None),
            found => found.map(Some).map_err(|error| failed(&name.to_string(), error)),
        }
    }

    async fn json(&self, request: HttpRequest) -> Result<Value, HttpError> {
        let response = self.send(request).await?;
        serde_json::from_slice(&response)
            .map_err(|error| HttpError::NoResponse(format!("invalid response: {error}")))
    }
}

/// All but an invalid request may pass: permissions are granted, kinds are added, servers restart.
pub(crate) fn failed(what: &str, error: HttpError) -> Error {
    let what = format!("Kubernetes ({what})");
    match &error {
        HttpError::Response(response) if [400, 422].contains(&response.code) => {
            Error::invalid("manifest", format!("{what}: {response}"))
        }
        _ => {
            let answered = matches!(error, HttpError::Response(_));
            let delivery = if answered { Delivery::Answered } else { Delivery::Unknown };
            Error::unavailable(what, error).with_delivery(delivery)
        }
    }
}
