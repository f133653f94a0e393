//! The format of reports from operators to a Mainstay server.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::model::class::Class;
use crate::model::spec_layout::Backend;
use crate::model::stream::{CurrentStatus, Stream};

/// The path of the route.
pub const PATH: &str = "/api/v1/streams/report";
/// Longer definitions are left out of reports.
const DEFINITION_BYTES_MAX: usize = 16 << 10;

/// A report. Reports are idempotent.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Report {
    pub classes: Vec<ClassReport>,
    pub streams: Vec<StreamReport>,
    /// The uids of deleted streams and classes.
    pub gone: Vec<String>,
    /// What exists; everything else in range has been deleted.
    pub whole: Vec<Snapshot>,
}

/// All objects of a kind with a uid from `from` up to, but not including, `to`; an empty `to` is
/// the end. In ranges, so that no report is too long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Whole)]
pub struct Snapshot {
    /// Classes if true, streams otherwise.
    pub classes: bool,
    /// Restricted to these namespaces; empty for all.
    pub namespaces: Vec<String>,
    pub from: String,
    pub to: String,
    pub uids: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassReport {
    pub uid: String,
    pub name: String,
    pub kind: String,
    /// `group/version` of its kind.
    pub api_version: String,
    pub plural: String,
    pub phase: String,
    pub message: String,
    pub generation: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamReport {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub kind: String,
    pub class: String,
    pub class_uid: String,
    pub phase: String,
    pub message: String,
    /// The condition is an error, whatever the phase.
    pub trouble: bool,
    pub suspended: bool,
    pub paused: bool,
    /// `change-capture`, `batch`, or empty.
    pub backend: String,
    pub schedule: String,
    pub generation: i64,
    #[schema(value_type = String)]
    pub created: Timestamp,
    #[schema(value_type = Option<String>)]
    pub since: Option<Timestamp>,
    /// The spec, unless it is very long.
    #[schema(value_type = Option<Object>)]
    pub definition: Option<Box<RawValue>>,
}

impl ClassReport {
    pub fn of(class: &Class) -> ClassReport {
        ClassReport {
            uid: class.uid.clone(),
            name: class.name.to_string(),
            kind: class.kind.to_string(),
            api_version: class.api_version(),
            plural: class.plural.clone(),
            phase: match class.phase.to_lowercase() {
                none if none.is_empty() => "new".into(),
                phase => phase,
            },
            message: class.message.clone(),
            generation: class.generation,
        }
    }
}

impl StreamReport {
    pub fn of(stream: &Stream, class: &Class) -> StreamReport {
        let execution = stream.execution.as_ref();
        let (backend, schedule) = match execution.map(|execution| execution.backend.as_ref()) {
            Ok(Some(Backend::ChangeCapture { .. })) => ("change-capture", ""),
            Ok(Some(Backend::Batch { schedule, .. })) => ("batch", &**schedule),
            Ok(None) | Err(_) => ("", ""),
        };
        let status = stream.status.as_deref();
        let message = match (execution, status) {
            (Err(problem), _) => problem.to_string(),
            (Ok(_), Some(status)) => status.message.to_string(),
            (Ok(_), None) => String::new(),
        };
        let said_suspended = stream.annotations.state.as_deref() == Some("suspended");
        let definition = Some(&*stream.spec).filter(|spec| spec.len() <= DEFINITION_BYTES_MAX);
        StreamReport {
            uid: stream.uid.to_string(),
            namespace: stream.object_name().namespace.to_string(),
            name: stream.object_name().name.to_string(),
            kind: class.kind.to_string(),
            class: class.name.to_string(),
            class_uid: class.uid.clone(),
            phase: stream.phase.name().to_lowercase(),
            message,
            trouble: execution.is_err() || status.is_some_and(CurrentStatus::is_error),
            suspended: said_suspended || execution.is_ok_and(|execution| execution.suspended),
            paused: stream.annotations.paused,
            backend: backend.into(),
            schedule: schedule.into(),
            generation: stream.generation,
            created: stream.created,
            since: status.and_then(|status| status.since),
            definition: definition.and_then(|spec| RawValue::from_string(spec.to_owned()).ok()),
        }
    }
}
