//! What is written on a stream itself: its status, annotations, events.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Done, Hands};
use crate::cluster::{Call, Refused, What};
use crate::decide::build::{self, Subject};
use crate::decide::command::Happened;
use crate::model::Key;
use crate::model::status::Status;

/// An event that cannot be written down is tried so often, and then let go: the status says it.
const EVENT_ATTEMPTS: u32 = 3;

impl Hands {
    pub(super) async fn set_status(&self, key: &Key, status: &Status) -> Result<Done, Refused> {
        let Some((class, stream)) = self.stream(key) else { return Ok(Done::default()) };
        let mut patch = status.patch(&stream, class.line, self.now());
        let write = async |patch: &Value| {
            let (what, place, patch) =
                (What::Stream(class.clone()), key.place.clone(), patch.clone());
            self.learn(Call::Patch { what, place, patch, status: true }).await
        };
        match write(&patch).await {
            // Some CRDs list the phases, and none is not among them.
            Err(Refused::Invalid(_)) if patch["status"]["phase"] == "" => {
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
    ) -> Result<Done, Refused> {
        let Some((class, _)) = self.stream(key) else { return Ok(Done::default()) };
        let patch = json!({ "metadata": { "annotations": { name: value } } });
        let (what, place) = (What::Stream(class), key.place.clone());
        self.learn(Call::Patch { what, place, patch, status: false }).await
    }

    pub(super) async fn publish(&self, key: &Key, happened: &Happened) -> Result<Done, Refused> {
        let Some((class, stream)) = self.stream(key) else { return Ok(Done::default()) };
        let api_version = class.api_version();
        self.publish_on(
            Subject {
                api_version: &api_version,
                kind: &class.kind,
                namespace: &key.place.namespace,
                name: &key.place.name,
                uid: &stream.uid,
            },
            happened,
        )
        .await;
        Ok(Done::default())
    }

    /// An event that is lost is no reason to do anything again.
    pub async fn publish_on(&self, subject: Subject<'_>, happened: &Happened) {
        for attempt in 1..=EVENT_ATTEMPTS {
            let event = build::event(subject, happened, self.now());
            let refused = match self.cluster.call(Call::Create(What::Event, event)).await {
                Ok(_) => return,
                Err(refused) => refused,
            };
            let again = matches!(refused, Refused::Busy(_) | Refused::Exists);
            if attempt == EVENT_ATTEMPTS || !again {
                let (reason, name) = (happened.reason, subject.name);
                tracing::warn!(reason, name, %refused, "an event could not be written");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
        }
    }
}
