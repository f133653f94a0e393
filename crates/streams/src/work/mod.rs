//! A handler for each action. It sends the requests and applies the responses to the index at once,
//! so that the next decision need not wait for a watch.
//!
//! Handlers are idempotent: an object that exists already or is gone already is not an error.

mod request;
mod stream;

use std::sync::Arc;

use jiff::Timestamp;
use kernel::Ambient;
use parking_lot::Mutex;
use serde_json::Value;

use crate::decide::action::{Mode, StopReason};
use crate::decide::{Action, Decision, decide};
use crate::index::Index;
use crate::model::class::Class;
use crate::model::meta::Revision;
use crate::model::stream::Stream;
use crate::model::watch::{ApiError, Object, Resource, WatchEvent};
use crate::model::{Key, NamespacedName};
use crate::ports::api_server::{ApiServer, Request, Response};

/// The dependencies of the handlers.
#[derive(Clone)]
pub struct Effects {
    pub api: Arc<dyn ApiServer>,
    pub index: Arc<Mutex<Index>>,
    pub ambient: Ambient,
}

/// The result of an action.
#[derive(Debug, Default, PartialEq)]
pub struct Executed {
    /// Other streams that the action may affect.
    pub affected: Vec<Key>,
    /// Why the action was not carried out.
    pub error: Option<ApiError>,
}

impl Effects {
    /// Decides and reserves limited resources under one lock, so that two streams cannot take the
    /// last slot for a backfill. Returns the other streams that may proceed because of it.
    pub fn decide(&self, key: &Key) -> (Decision, Vec<Key>) {
        let now = self.now();
        let mut index = self.index.lock();
        // Releases what an earlier attempt reserved and did not use.
        let affected = index.release_backfill(&key.object_name);
        let decision = decide(&index.observe(key, now), now);
        index.set_waiting(key, decision.waiting_for_backfill);
        for action in &decision.actions {
            match action {
                Action::StartJob { mode: Mode::Backfill(_), .. } => {
                    index.reserve_backfill(&key.object_name);
                }
                Action::StopJob { running: true, why: StopReason::Changed, .. } => {
                    index.record_restart(now)
                }
                _ => {}
            }
        }
        (decision, affected)
    }

    pub async fn execute(&self, key: &Key, action: &Action) -> Executed {
        let done = match action {
            Action::RequestInitialBackfill { manifest } => {
                self.create(Resource::BackfillRequests, manifest).await
            }
            Action::StartJob { manifest, .. } => self.create(Resource::Jobs, manifest).await,
            Action::StopJob { uid, running, .. } => {
                self.delete(Resource::Jobs, &key.object_name, uid, *running).await
            }
            Action::StartSchedule { manifest } => self.create(Resource::CronJobs, manifest).await,
            Action::StopSchedule { uid } => {
                self.delete(Resource::CronJobs, &key.object_name, uid, true).await
            }
            Action::LookUpJobResult { uid } => self.look_up_job_result(key, uid).await,
            Action::CompleteRequest { name } => self.complete_request(key, name).await,
            Action::RefuseRequest { request, why } => self.refuse_request(request, why).await,
            Action::RemoveRequest { request, uid } => {
                self.delete(Resource::BackfillRequests, request, uid, false).await
            }
            Action::Annotate { name, value } => self.annotate(key, name, value.as_deref()).await,
            Action::SetStatus(status) => self.set_status(key, status).await,
            Action::Publish(event) => self.publish(key, event).await,
        };
        done.unwrap_or_else(|error| self.failed(key, action, error))
    }

    fn failed(&self, key: &Key, action: &Action, error: ApiError) -> Executed {
        let backfill = matches!(action, Action::StartJob { mode: Mode::Backfill(_), .. });
        let affected = match error {
            // No response: the Job may be running and counts as such until a watch reports
            // otherwise.
            ApiError::Unreachable(_) => Vec::new(),
            _ if backfill => self.index.lock().release_backfill(&key.object_name),
            _ => Vec::new(),
        };
        Executed { affected, error: Some(error) }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ambient.now().millis()).unwrap_or_default()
    }

    async fn create(&self, resource: Resource, manifest: &Value) -> Result<Executed, ApiError> {
        self.learn(Request::Create(resource, manifest.clone())).await
    }

    /// Sends a request and applies the object of its response.
    async fn learn(&self, request: Request) -> Result<Executed, ApiError> {
        match self.api.send(request).await? {
            Response::Object(object) => Ok(self.upsert(*object)),
            _ => Ok(Executed::default()),
        }
    }

    fn upsert(&self, object: Object) -> Executed {
        Executed { affected: self.index.lock().upsert(object), ..Executed::default() }
    }

    /// Deletes an object. An immediate deletion is applied at once; a watch reports the others.
    async fn delete(
        &self,
        resource: Resource,
        object_name: &NamespacedName,
        uid: &str,
        foreground: bool,
    ) -> Result<Executed, ApiError> {
        let (name, uid) = (object_name.clone(), Box::<str>::from(uid));
        let request = Request::Delete {
            resource: resource.clone(),
            object_name: name.clone(),
            uid: uid.clone(),
            foreground,
        };
        match self.api.send(request).await {
            Ok(Response::Object(object)) => Ok(self.upsert(*object)),
            Ok(_) | Err(ApiError::NotFound) => Ok(self.gone(&resource, name, uid)),
            Err(error) => Err(error),
        }
    }

    fn gone(&self, resource: &Resource, object_name: NamespacedName, uid: Box<str>) -> Executed {
        // No event is newer than a deletion.
        let event = WatchEvent::Deleted(object_name, uid, Revision::of(""));
        Executed { affected: self.index.lock().apply(resource, event), ..Executed::default() }
    }

    async fn look_up_job_result(&self, key: &Key, uid: &str) -> Result<Executed, ApiError> {
        let request = Request::JobResult { object_name: key.object_name.clone(), uid: uid.into() };
        if let Response::JobResult(result) = self.api.send(request).await? {
            self.index.lock().record_job_result(&key.object_name, uid, result);
        }
        Ok(Executed::default())
    }

    fn stream(&self, key: &Key) -> Option<(Arc<Class>, Arc<Stream>)> {
        let index = self.index.lock();
        Some((index.class(&key.class)?.clone(), index.stream(key)?.clone()))
    }
}
