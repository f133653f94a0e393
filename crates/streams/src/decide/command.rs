//! What a decision asks for. Each command has one handler in `work`.

use crate::model::Place;
use crate::model::status::Status;

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Ask for the first backfill of a new stream. Made once: the name follows from the stream.
    RequestInitialBackfill,
    /// Make the Job; for a backfill, with the request's name or, in v1beta1, none.
    StartJob(Mode),
    /// Remove the Job with this uid; first its pods, if it may still be running.
    StopJob {
        uid: Box<str>,
        running: bool,
    },
    /// Make the CronJob.
    StartSchedule,
    StopSchedule {
        uid: Box<str>,
    },
    /// Find out how a Job ended that has gone unseen.
    AskFate {
        uid: Box<str>,
    },
    CompleteRequest {
        name: Box<str>,
    },
    /// Say on a request that it can not be carried out, and why.
    RefuseRequest {
        request: Place,
        why: String,
    },
    /// Remove a completed request that nobody needs any more.
    RemoveRequest {
        request: Place,
        uid: Box<str>,
    },
    /// Set an annotation of the stream, or remove it.
    Annotate {
        name: &'static str,
        value: Option<String>,
    },
    SetStatus(Status),
    /// An event on the stream.
    Publish(Happened),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Stream,
    /// The request's name; none if an annotation asked for it.
    Backfill(Option<Box<str>>),
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Happened {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Happened {
        Happened { warning: false, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Happened {
        Happened { warning: true, reason, message: message.into() }
    }
}

/// What is to be done now, and when to look again without being woken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    pub commands: Vec<Command>,
    pub look_at: Option<jiff::Timestamp>,
}
