//! What a decision asks for. Each command has one handler in `work`.

use serde_json::Value;

use crate::model::NamespacedName;
use crate::model::status::Status;

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask for the first backfill of a new stream. Made once: the name follows from the stream.
    RequestInitialBackfill {
        manifest: Value,
    },
    StartJob {
        mode: Mode,
        manifest: Value,
    },
    /// Remove the Job with this uid; first its pods, if it may still be running.
    StopJob {
        uid: Box<str>,
        running: bool,
        why: StopReason,
    },
    /// Make the CronJob.
    StartSchedule {
        manifest: Value,
    },
    StopSchedule {
        uid: Box<str>,
    },
    /// Find out how a Job ended that has gone unseen.
    LookUpJobResult {
        uid: Box<str>,
    },
    CompleteRequest {
        name: Box<str>,
    },
    /// Say on a request that it can not be carried out, and why.
    RefuseRequest {
        request: NamespacedName,
        why: String,
    },
    /// Remove a completed request that nobody needs any more.
    RemoveRequest {
        request: NamespacedName,
        uid: Box<str>,
    },
    /// Set an annotation of the stream, or remove it.
    Annotate {
        name: &'static str,
        value: Option<String>,
    },
    SetStatus(Status),
    /// An event on the stream.
    Publish(K8sEvent),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Stream,
    /// The request's name; none if an annotation asked for it.
    Backfill(Option<Box<str>>),
}

/// Why a Job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    Suspended,
    /// Its configuration, its template or a secret is another now, or someone asked for it.
    Changed,
    /// A backfill is to run in its place.
    Backfill,
    /// It has done what it was there for.
    Ended,
    Failed,
    /// It stands where another backend is wanted.
    Backend,
}

/// An event.
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

/// What is to be done now, and when to look again without being woken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub requeue_at: Option<jiff::Timestamp>,
    /// It would start a backfill if fewer were running.
    pub waiting_for_backfill: bool,
}

impl Decision {
    pub fn of(actions: impl IntoIterator<Item = Action>) -> Decision {
        Decision { actions: actions.into_iter().collect(), ..Decision::default() }
    }
}
