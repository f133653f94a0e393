//! The actions of a decision. Each has a handler in `work`.

use serde_json::Value;

use crate::model::NamespacedName;
use crate::model::status::Status;

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create the initial BackfillRequest of a new stream. Its name is derived from the stream.
    RequestInitialBackfill {
        manifest: Value,
    },
    StartJob {
        mode: Mode,
        manifest: Value,
    },
    /// Delete the Job with this uid, and its pods first if it may be running.
    StopJob {
        uid: Box<str>,
        running: bool,
        why: StopReason,
    },
    /// Create the CronJob.
    StartSchedule {
        manifest: Value,
    },
    StopSchedule {
        uid: Box<str>,
    },
    /// Look up how a Job ended that was deleted unobserved.
    LookUpJobResult {
        uid: Box<str>,
    },
    CompleteRequest {
        name: Box<str>,
    },
    /// Mark a request as one that cannot be carried out.
    RefuseRequest {
        request: NamespacedName,
        why: String,
    },
    /// Delete a completed request that is no longer kept.
    RemoveRequest {
        request: NamespacedName,
        uid: Box<str>,
    },
    /// Set or remove an annotation of the stream.
    Annotate {
        name: &'static str,
        value: Option<String>,
    },
    SetStatus(Status),
    /// Create an event on the stream.
    Publish(K8sEvent),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Stream,
    /// The name of the request; none if an annotation requested the backfill.
    Backfill(Option<Box<str>>),
}

/// Why a Job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    Suspended,
    /// The configuration, the template or a secret changed, or a restart was requested.
    Changed,
    /// A backfill replaces it.
    Backfill,
    /// Its work is done.
    Ended,
    Failed,
    /// The stream has another backend now.
    Backend,
}

/// A Kubernetes event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct K8sEvent {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl K8sEvent {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> K8sEvent {
        K8sEvent { warning: false, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> K8sEvent {
        K8sEvent { warning: true, reason, message: message.into() }
    }
}

/// What to do now, and when to reconcile again without an event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub requeue_at: Option<jiff::Timestamp>,
    /// A backfill is held back by the limit of concurrent backfills.
    pub waiting_for_backfill: bool,
}

impl Decision {
    pub fn of(actions: impl IntoIterator<Item = Action>) -> Decision {
        Decision { actions: actions.into_iter().collect(), ..Decision::default() }
    }
}
