//! The API server, as the operator uses it: what it tells, and what it can be asked. The real one
//! is `ports::kubernetes`, the simulated one is in the tests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde_json::Value;

use crate::model::class::Class;
use crate::model::job::{Cron, Fate, Job};
use crate::model::meta::Revision;
use crate::model::request::Request;
use crate::model::stream::Stream;
use crate::model::template::Template;
use crate::model::{Line, Place};

#[async_trait]
pub trait Cluster: Send + Sync + 'static {
    /// What there is, and every change of it from then on. Goes on whatever happens: when
    /// something may have been missed, all is told again.
    fn watch(&self, what: Watched) -> BoxStream<'static, Told>;

    /// One request.
    async fn call(&self, call: Call) -> Result<Answer, Refused>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    Classes(Line),
    /// The streams of a class.
    Streams(Arc<Class>),
    /// Jobs of streams and of schedules.
    Jobs,
    Crons,
    Requests,
    Templates(Line),
    /// Only who they are and their versions.
    Secrets,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    Class(Class),
    Stream(Stream),
    Job(Job),
    Cron(Cron),
    Request(Request),
    Template(Template),
    Secret(Place, Revision),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Everything that is there; what was known beside it is gone.
    All(Vec<Object>),
    Is(Box<Object>),
    /// The place, the uid and the version of its end.
    Gone(Place, Box<str>, Revision),
    /// It cannot be watched now, and will be tried again.
    Trouble(Refused),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// A manifest with everything in it.
    Create(What, Value),
    Delete {
        what: What,
        place: Place,
        /// Only this one.
        uid: Box<str>,
        /// First what it owns: it stays until its pods have ended.
        foreground: bool,
    },
    /// A merge patch.
    Patch {
        what: What,
        place: Place,
        patch: Value,
        status: bool,
    },
    /// How a Job ended that is there no more, by the events that it left.
    Fate {
        place: Place,
        uid: Box<str>,
    },
    ReadLease(Place),
    /// With the version that was read; none to make it.
    WriteLease(Place, Lease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Class(Line),
    Stream(Arc<Class>),
    Job,
    Cron,
    Request,
    Event,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    pub version: Option<String>,
    pub holder: String,
    pub duration_s: i32,
    pub acquired: Timestamp,
    pub renewed: Timestamp,
    pub transitions: i32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// As it is now.
    Object(Box<Object>),
    /// It was carried out, and there is nothing to know.
    Done,
    Fate(Fate),
    Lease(Option<Lease>),
}

/// Why a request was not carried out. None of these is a reason to stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is not there")]
    NotFound,
    #[error("one of that name exists")]
    Exists,
    /// The uid or the version is another by now.
    #[error("it has changed meanwhile")]
    Conflict,
    /// With what Kubernetes said, which names the verb and the resource.
    #[error("not allowed: {0}")]
    Forbidden(String),
    #[error("refused: {0}")]
    Invalid(String),
    #[error("the API server asks to wait")]
    Busy(Option<Duration>),
    /// No answer, so it may have been carried out.
    #[error("the API server cannot be reached: {0}")]
    Away(String),
}
