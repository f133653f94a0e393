//! Looks up how a deleted Job ended: the Job controller's events outlive it by an hour.

use ::kubernetes::{HttpRequest, segment};
use serde::Deserialize;

use super::{Kubernetes, paths};
use crate::model::NamespacedName;
use crate::model::job::JobResult;
use crate::model::watch::{ApiError, Resource};

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

/// The reasons of the condition `Failed` and of its event.
const FAILED: [&str; 6] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PodFailurePolicy",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "JobFailed",
];

impl Kubernetes {
    pub async fn job_result(
        &self,
        object_name: &NamespacedName,
        uid: &str,
    ) -> Result<JobResult, ApiError> {
        let path = paths::collection(&Resource::Events).path(Some(&object_name.namespace));
        let path = format!("{path}?limit=500&fieldSelector=involvedObject.uid%3D{}", segment(uid));
        let answer = self.client.send(HttpRequest::list(path, false)).await?;
        let events: Events = serde_json::from_slice(&answer)
            .map_err(|error| ApiError::Unreachable(format!("invalid list of events: {error}")))?;
        Ok(result_of(&events.items))
    }
}

fn result_of(events: &[Event]) -> JobResult {
    let failed = events.iter().find(|event| FAILED.contains(&event.reason.as_str()));
    if let Some(Event { reason, message }) = failed {
        return JobResult::Failed(format!("{reason}: {message}").into());
    }
    if events.iter().any(|event| event.reason == "Completed") {
        JobResult::Complete
    } else {
        JobResult::Removed
    }
}
