//! One handler for each command: it makes the requests, and what the API server answers goes into
//! the index at once, so that the next decision need not wait for a watch.
//!
//! Handlers may be called again with the same command: "it is there already" and "it is not there"
//! are answers.

mod job;
mod request;
mod stream;

use std::sync::Arc;

use jiff::Timestamp;
use kernel::Ambient;
use parking_lot::Mutex;

use crate::decide::action::{Mode, StopReason};
use crate::decide::{Action, Decision, decide};
use crate::index::Index;
use crate::model::class::Class;
use crate::model::stream::Stream;
use crate::model::watch::{ApiError, Object, WatchEvent, WatchTarget};
use crate::model::{Key, NamespacedName};
use crate::ports::api_server::{ApiServer, Request, Response};

/// Everything that a handler may use.
#[derive(Clone)]
pub struct Effects {
    pub api: Arc<dyn ApiServer>,
    pub index: Arc<Mutex<Index>>,
    pub ambient: Ambient,
}

/// What came of a command.
#[derive(Debug, Default, PartialEq)]
pub struct Executed {
    /// Streams that it may matter to, beside the one that it was for.
    pub affected: Vec<Key>,
    /// It was not carried out.
    pub error: Option<ApiError>,
}

impl Effects {
    /// Decides, and takes what the decision needs of what is limited, under one lock: no two
    /// streams take the last room for a backfill. Others may go on because of it.
    pub fn decide(&self, key: &Key) -> (Decision, Vec<Key>) {
        let now = self.now();
        let mut index = self.index.lock();
        // What an earlier attempt took and did not use, or not as far as is known.
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
            Action::RequestInitialBackfill { manifest } => self.request_initial(manifest).await,
            Action::StartJob { manifest, .. } => self.start_job(manifest).await,
            Action::StopJob { uid, running, .. } => self.stop_job(key, uid, *running).await,
            Action::StartSchedule { manifest } => self.start_schedule(manifest).await,
            Action::StopSchedule { uid } => self.stop_schedule(key, uid).await,
            Action::LookUpJobResult { uid } => self.look_up_job_result(key, uid).await,
            Action::CompleteRequest { name } => self.complete_request(key, name).await,
            Action::RefuseRequest { request, why } => self.refuse_request(request, why).await,
            Action::RemoveRequest { request, uid } => self.remove_request(request, uid).await,
            Action::Annotate { name, value } => self.annotate(key, name, value.as_deref()).await,
            Action::SetStatus(status) => self.set_status(key, status).await,
            Action::Publish(event) => self.publish(key, event).await,
        };
        done.unwrap_or_else(|error| self.failed(key, action, error))
    }

    fn failed(&self, key: &Key, action: &Action, error: ApiError) -> Executed {
        let backfill = matches!(action, Action::StartJob { mode: Mode::Backfill(_), .. });
        let affected = match error {
            // No answer: it may be running, and is counted as if until a watch tells.
            ApiError::Unreachable(_) => Vec::new(),
            _ if backfill => self.index.lock().release_backfill(&key.object_name),
            _ => Vec::new(),
        };
        Executed { affected, error: Some(error) }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ambient.now().millis()).unwrap_or_default()
    }

    /// A request whose answer is an object, or nothing to know.
    async fn learn(&self, send: Request) -> Result<Executed, ApiError> {
        match self.api.send(send).await? {
            Response::Object(object) => Ok(self.upsert(*object)),
            _ => Ok(Executed::default()),
        }
    }

    fn upsert(&self, object: Object) -> Executed {
        Executed { affected: self.index.lock().upsert(object), ..Executed::default() }
    }

    /// A removal. One that is carried out at once is known at once; a watch tells of the others.
    async fn remove(&self, send: Request, watched: &WatchTarget) -> Result<Executed, ApiError> {
        let Request::Delete { object_name, uid, .. } = &send else {
            return Ok(Executed::default());
        };
        let (object_name, uid) = (object_name.clone(), uid.clone());
        match self.api.send(send).await {
            Ok(Response::Object(object)) => Ok(self.upsert(*object)),
            Ok(_) | Err(ApiError::NotFound) => Ok(self.gone(watched, object_name, uid)),
            Err(error) => Err(error),
        }
    }

    fn gone(&self, watched: &WatchTarget, object_name: NamespacedName, uid: Box<str>) -> Executed {
        // The version is one that no other saying is older than: there is nothing after an end.
        let told = WatchEvent::Deleted(object_name, uid, crate::model::meta::Revision::of(""));
        Executed { affected: self.index.lock().apply(watched, told), ..Executed::default() }
    }

    fn stream(&self, key: &Key) -> Option<(Arc<Class>, Arc<Stream>)> {
        let index = self.index.lock();
        Some((index.class(&key.class)?.clone(), index.stream(key)?.clone()))
    }
}
