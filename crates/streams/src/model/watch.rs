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

/// A resource of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
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
    /// Only created and listed.
    Events,
}

impl Resource {
    /// The label in metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Resource::Classes(_) => "classes",
            Resource::Streams(_) => "streams",
            Resource::Jobs => "jobs",
            Resource::CronJobs => "cronjobs",
            Resource::BackfillRequests => "backfillrequests",
            Resource::Templates(_) => "templates",
            Resource::Secrets => "secrets",
            Resource::Events => "events",
        }
    }
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

impl Object {
    /// The name, uid and revision. Templates and secrets are identified by their name alone.
    pub fn identity(&self) -> (NamespacedName, Box<str>, Revision) {
        match self {
            Object::Class(class) => (class.object_name(), (*class.uid).into(), class.revision),
            Object::Stream(stream) => {
                (stream.object_name().clone(), stream.uid.clone(), stream.revision)
            }
            Object::Job(job) => (job.object_name.clone(), job.uid.clone(), job.revision),
            Object::CronJob(cron_job) => {
                (cron_job.object_name.clone(), cron_job.uid.clone(), cron_job.revision)
            }
            Object::BackfillRequest(request) => {
                (request.object_name.clone(), (*request.uid).into(), request.revision)
            }
            Object::Template(template) => {
                (template.object_name.clone(), "".into(), template.revision)
            }
            Object::Secret(object_name, revision) => (object_name.clone(), "".into(), *revision),
        }
    }
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
