//! What the API server reports: objects, changes of them, and errors.

use std::sync::Arc;

pub use kubernetes::ApiError;

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

pub type WatchEvent = kubernetes::WatchEvent<Object>;

/// The state of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchState {
    /// Not listed yet.
    Unknown,
    Synced,
    Failed(ApiError),
}
