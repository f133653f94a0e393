//! What a decision asks for. Each command has one handler in `work`.

use serde_json::Value;

use crate::model::Place;
use crate::model::status::Status;

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
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
        why: Why,
    },
    /// Make the CronJob.
    StartSchedule {
        manifest: Value,
    },
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

/// Why a Job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
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
    /// It would start a backfill if fewer were running.
    pub waits_for_backfills: bool,
}

impl Decision {
    pub fn of(commands: impl IntoIterator<Item = Command>) -> Decision {
        Decision { commands: commands.into_iter().collect(), ..Decision::default() }
    }
}
