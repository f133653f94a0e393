//! How a Job ended that is there no more: the Job controller leaves an event for an hour.

use serde::Deserialize;

use super::Kubernetes;
use super::http::Ask;
use super::paths::{Collection, segment};
use crate::cluster::{Refused, What};
use crate::model::Place;
use crate::model::job::Fate;

#[derive(Deserialize)]
struct Events {
    #[serde(default)]
    items: Vec<Event>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Event {
    reason: String,
    message: String,
}

/// The reasons of the condition `Failed`, which are those of the event too.
const FAILED: [&str; 6] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PodFailurePolicy",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "JobFailed",
];

impl Kubernetes {
    pub async fn fate(&self, place: &Place, uid: &str) -> Result<Fate, Refused> {
        let path = Collection::what(&What::Event)?.path(Some(&place.namespace));
        let path = format!("{path}?limit=500&fieldSelector=involvedObject.uid%3D{}", segment(uid));
        let answer = self.ask(Ask::get(path)).await?;
        let events: Events = serde_json::from_slice(&answer)
            .map_err(|error| Refused::Away(format!("the events cannot be read: {error}")))?;
        Ok(told(&events.items))
    }
}

fn told(events: &[Event]) -> Fate {
    let failed = events.iter().find(|event| FAILED.contains(&event.reason.as_str()));
    if let Some(Event { reason, message }) = failed {
        return Fate::Failed(format!("{reason}: {message}").into());
    }
    match events.iter().any(|event| event.reason == "Completed") {
        true => Fate::Complete,
        false => Fate::Gone,
    }
}
