//! Writes a stream's status, annotations and events.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Effects, Executed};
use crate::decide::action::K8sEvent;
use crate::decide::build::{self, Subject};
use crate::model::Key;
use crate::model::status::Status;
use crate::model::watch::{ApiError, Resource};
use crate::ports::api_server::Request;

/// Attempts to create an event. After that it is dropped: the status has the same information.
const EVENT_ATTEMPTS: u32 = 3;

impl Effects {
    pub(super) async fn set_status(
        &self,
        key: &Key,
        status: &Status,
    ) -> Result<Executed, ApiError> {
        let Some((class, stream)) = self.stream(key) else { return Ok(Executed::default()) };
        let mut patch = status.patch(&stream, class.crd_version, self.now());
        let write = async |patch: &Value| {
            let (resource, object_name, patch) =
                (Resource::Streams(class.clone()), key.object_name.clone(), patch.clone());
            self.learn(Request::Patch { resource, object_name, patch, status: true }).await
        };
        match write(&patch).await {
            // Some CRDs enumerate the phases without an empty one.
            Err(ApiError::Invalid(_)) if patch["status"]["phase"] == "" => {
                patch["status"].as_object_mut().map(|status| status.shift_remove("phase"));
                write(&patch).await
            }
            answer => answer,
        }
    }

    pub(super) async fn annotate(
        &self,
        key: &Key,
        name: &str,
        value: Option<&str>,
    ) -> Result<Executed, ApiError> {
        let Some((class, _)) = self.stream(key) else { return Ok(Executed::default()) };
        let patch = json!({ "metadata": { "annotations": { name: value } } });
        let (resource, object_name) = (Resource::Streams(class), key.object_name.clone());
        self.learn(Request::Patch { resource, object_name, patch, status: false }).await
    }

    pub(super) async fn publish(&self, key: &Key, event: &K8sEvent) -> Result<Executed, ApiError> {
        let Some((class, stream)) = self.stream(key) else { return Ok(Executed::default()) };
        let api_version = class.api_version();
        self.publish_on(
            Subject {
                api_version: &api_version,
                kind: &class.kind,
                namespace: &key.object_name.namespace,
                name: &key.object_name.name,
                uid: &stream.uid,
            },
            event,
        )
        .await;
        Ok(Executed::default())
    }

    /// A lost event is not worth a retry of the action.
    pub async fn publish_on(&self, subject: Subject<'_>, event: &K8sEvent) {
        for attempt in 1..=EVENT_ATTEMPTS {
            let manifest = build::event_manifest(subject, event, self.now());
            let error = match self.api.send(Request::Create(Resource::Events, manifest)).await {
                Ok(_) => return,
                Err(error) => error,
            };
            let again = matches!(error, ApiError::Throttled(_) | ApiError::AlreadyExists);
            if attempt == EVENT_ATTEMPTS || !again {
                let (reason, name) = (event.reason, subject.name);
                tracing::warn!(reason, name, %error, "creating an event failed");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
        }
    }
}
