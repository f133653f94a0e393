//! The collections of the operator's resources.

use ::kubernetes::Collection;

use crate::model::class::Class;
use crate::model::watch::Resource;
use crate::model::{CrdVersion, GROUP};

pub fn collection(resource: &Resource) -> Collection {
    match resource {
        Resource::Classes(CrdVersion::V1) => Collection::custom(GROUP, "v1", "streamclasses"),
        Resource::Classes(CrdVersion::V1Beta1) => {
            Collection::custom(GROUP, "v1beta1", "stream-classes")
        }
        Resource::Streams(class) => streams(class),
        Resource::Jobs => Collection::new("batch", "v1", "jobs"),
        Resource::CronJobs => Collection::new("batch", "v1", "cronjobs"),
        Resource::BackfillRequests => Collection::custom(GROUP, "v1", "backfillrequests"),
        Resource::Templates(CrdVersion::V1) => {
            Collection::custom(GROUP, "v1", "streamingjobtemplates")
        }
        Resource::Templates(CrdVersion::V1Beta1) => {
            Collection::custom(GROUP, "v1", "streaming-job-templates")
        }
        Resource::Secrets => Collection::new("", "v1", "secrets"),
        Resource::Events => Collection::new("", "v1", "events"),
    }
}

pub fn streams(class: &Class) -> Collection {
    Collection::custom(&class.group, &class.version, &class.plural)
}
