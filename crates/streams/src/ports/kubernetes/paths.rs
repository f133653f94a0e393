//! The collections of the operator's resources.

use ::kubernetes::Collection;

use crate::model::class::Class;
use crate::model::watch::{ApiError, WatchTarget};
use crate::model::{CrdVersion, GROUP};
use crate::ports::api_server::ResourceKind;

pub fn of_target(target: &WatchTarget) -> Result<Collection, ApiError> {
    Ok(match target {
        WatchTarget::Classes(crd_version) => classes(*crd_version),
        WatchTarget::Streams(class) => streams(class)?,
        WatchTarget::Jobs => Collection::new("batch", "v1", "jobs"),
        WatchTarget::CronJobs => Collection::new("batch", "v1", "cronjobs"),
        WatchTarget::BackfillRequests => Collection::custom(GROUP, "v1", "backfillrequests"),
        WatchTarget::Templates(crd_version) => {
            Collection::custom(GROUP, "v1", crd_version.templates())
        }
        WatchTarget::Secrets => Collection::new("", "v1", "secrets"),
    })
}

pub fn of_kind(kind: &ResourceKind) -> Result<Collection, ApiError> {
    Ok(match kind {
        ResourceKind::Class(crd_version) => classes(*crd_version),
        ResourceKind::Stream(class) => streams(class)?,
        ResourceKind::Job => Collection::new("batch", "v1", "jobs"),
        ResourceKind::CronJob => Collection::new("batch", "v1", "cronjobs"),
        ResourceKind::BackfillRequest => Collection::custom(GROUP, "v1", "backfillrequests"),
        ResourceKind::Event => Collection::new("", "v1", "events"),
    })
}

fn classes(crd_version: CrdVersion) -> Collection {
    match crd_version {
        CrdVersion::V1 => Collection::custom(GROUP, "v1", "streamclasses"),
        CrdVersion::V1Beta1 => Collection::custom(GROUP, "v1beta1", "stream-classes"),
    }
}

fn streams(class: &Class) -> Result<Collection, ApiError> {
    for (field, value) in [("apiVersion", &class.version), ("pluralName", &class.plural)] {
        if value.is_empty() {
            let why = format!("spec.{field} of the class {} is empty", class.name);
            return Err(ApiError::Invalid(why));
        }
    }
    Ok(Collection::custom(&class.group, &class.version, &class.plural))
}
