//! An API server client that sends requests only while this process leads, and counts them.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kubernetes::Leadership;
use tokio::time::Instant;

use crate::metrics::{ApiCall, Metrics};
use crate::model::watch::{ApiError, Resource, WatchEvent};
use crate::ports::api_server::{ApiServer, Request, Response};

pub struct LeaderOnlyApi {
    pub api: Arc<dyn ApiServer>,
    pub leadership: Arc<Leadership>,
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl ApiServer for LeaderOnlyApi {
    fn watch(&self, target: Resource) -> BoxStream<'static, WatchEvent> {
        let resource = target.label();
        let metrics = self.metrics.clone();
        let event = self.api.watch(target).inspect(move |event| {
            let status = match event {
                WatchEvent::Snapshot(_) => "ok",
                WatchEvent::Error(error) => status(error),
                WatchEvent::Upserted(_) | WatchEvent::Deleted(..) => return,
            };
            metrics.api_call(ApiCall { verb: "list", resource, status }, None);
        });
        event.boxed()
    }

    async fn send(&self, send: Request) -> Result<Response, ApiError> {
        let (verb, resource) = labels(&send);
        let begun = Instant::now();
        // A candidate needs the Lease to become leader.
        let lease = matches!(send, Request::ReadLease(_) | Request::WriteLease(..));
        let answer = match self.leadership.until() {
            _ if lease => self.api.send(send).await,
            Some(until) => match tokio::time::timeout_at(until, self.api.send(send)).await {
                Ok(answer) => answer,
                Err(_) => Err(ApiError::Unreachable("this process lost leadership".into())),
            },
            None => return Err(ApiError::Unreachable("this process is not the leader".into())),
        };
        let status = answer.as_ref().err().map_or("ok", status);
        self.metrics.api_call(ApiCall { verb, resource, status }, Some(begun.elapsed()));
        answer
    }
}

/// The verb and the resource in metrics.
fn labels(request: &Request) -> (&'static str, &'static str) {
    match request {
        Request::Create(resource, _) => ("create", resource.label()),
        Request::Delete { resource, .. } => ("delete", resource.label()),
        Request::Patch { resource, .. } => ("patch", resource.label()),
        Request::JobResult { .. } => ("list", "events"),
        Request::ReadLease(_) => ("get", "leases"),
        Request::WriteLease(..) => ("update", "leases"),
    }
}

fn status(error: &ApiError) -> &'static str {
    match error {
        ApiError::NotFound => "not_found",
        ApiError::AlreadyExists => "exists",
        ApiError::Conflict => "conflict",
        ApiError::Forbidden(_) => "forbidden",
        ApiError::Invalid(_) => "invalid",
        ApiError::Throttled(_) => "busy",
        ApiError::Unreachable(_) => "away",
    }
}
