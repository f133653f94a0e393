//! What the API server reports: objects, changes of them, and errors.

use std::sync::Arc;
use std::time::Duration;

use super::backfill_request::BackfillRequest;
use super::class::Class;
use super::job::{CronJob, Job};
use super::meta::Revision;
use super::stream::Stream;
use super::template::Template;
use super::{CrdVersion, NamespacedName};

/// A set of objects that can be listed and watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchTarget {
    Classes(CrdVersion),
    /// The streams of a class.
    Streams(Arc<Class>),
    /// Jobs of streams and of CronJobs.
    Jobs,
    CronJobs,
    BackfillRequests,
    Templates(CrdVersion),
    /// Metadata only.
    Secrets,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    Class(Class),
    Stream(Stream),
    Job(Job),
    CronJob(CronJob),
    BackfillRequest(BackfillRequest),
    Template(Template),
    Secret(NamespacedName, Revision),
}

#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// All objects that exist; any other that was known has been deleted.
    Snapshot(Vec<Object>),
    Upserted(Box<Object>),
    /// Name, uid and the revision of the deletion.
    Deleted(NamespacedName, Box<str>, Revision),
    /// The target cannot be watched now; the watch retries.
    Error(ApiError),
}

/// The state of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchState {
    /// Not listed yet.
    Unknown,
    Synced,
    Failed(ApiError),
}

/// Why the API server did not carry out a request. All of them are retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    #[error("the object does not exist")]
    NotFound,
    #[error("an object of that name exists")]
    AlreadyExists,
    /// The uid or the resource version differs.
    #[error("the object was changed concurrently")]
    Conflict,
    /// The message of Kubernetes, which names the verb and the resource.
    #[error("not allowed: {0}")]
    Forbidden(String),
    #[error("refused: {0}")]
    Invalid(String),
    /// With the time to wait, if the server gave one.
    #[error("the API server is throttling requests")]
    Throttled(Option<Duration>),
    /// No response, so the request may have been carried out.
    #[error("the API server is unreachable: {0}")]
    Unreachable(String),
}
