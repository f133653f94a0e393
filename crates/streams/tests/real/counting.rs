//! An API server client that records its requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use streams::model::watch::{ApiError, Resource, WatchEvent};
use streams::ports::api_server::{ApiServer, Request, Response};

pub struct Counting {
    api: Arc<dyn ApiServer>,
    requests: Mutex<Vec<String>>,
    lists: Mutex<Vec<String>>,
    dead: AtomicBool,
}

impl Counting {
    pub fn new(api: Arc<dyn ApiServer>) -> Arc<Counting> {
        Arc::new(Counting {
            api,
            requests: Mutex::default(),
            lists: Mutex::default(),
            dead: AtomicBool::new(false),
        })
    }

    /// All requests except lists, watches and those of the Lease.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    pub fn of(&self, prefix: &str) -> usize {
        self.requests.lock().iter().filter(|requests| requests.starts_with(prefix)).count()
    }

    pub fn lists(&self) -> Vec<String> {
        self.lists.lock().clone()
    }

    /// From now on no request is sent.
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    pub fn clear(&self) {
        self.requests.lock().clear();
    }
}

#[async_trait]
impl ApiServer for Counting {
    fn watch(&self, kind: Resource) -> BoxStream<'static, WatchEvent> {
        self.lists.lock().push(format!("{kind:?}"));
        self.api.watch(kind).boxed()
    }

    async fn send(&self, send: Request) -> Result<Response, ApiError> {
        if self.dead.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        let name = |resource: &Resource| match resource {
            Resource::Classes(_) => "class",
            Resource::Streams(_) => "stream",
            Resource::Jobs => "job",
            Resource::CronJobs => "cronjob",
            Resource::BackfillRequests => "request",
            Resource::Events => "event",
            other => other.label(),
        };
        let requests = match &send {
            Request::Create(resource, manifest) => {
                let of = if manifest["involvedObject"]["kind"] == "StreamClass" {
                    " of a class"
                } else {
                    ""
                };
                Some(format!("create {}{of} {}", name(resource), manifest["metadata"]["name"]))
            }
            Request::Delete { resource, object_name, .. } => {
                Some(format!("delete {} {object_name}", name(resource)))
            }
            Request::Patch { resource, object_name, status, .. } => {
                let part = if *status { "status" } else { "object" };
                Some(format!("patch {} {part} {object_name}", name(resource)))
            }
            Request::JobResult { object_name, .. } => Some(format!("fate {object_name}")),
            Request::ReadLease(_) | Request::WriteLease(..) => None,
        };
        self.requests.lock().extend(requests);
        self.api.send(send).await
    }
}
