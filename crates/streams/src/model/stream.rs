//! The parts of a stream definition that decisions need.

use jiff::Timestamp;
use kubernetes::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::class::Class;
use super::hash::{Digest, canonical_digest, checksum, go_compatible_json, md5_hex};
use super::meta::{Condition, Raw, Revision};
use super::phase::Phase;
use super::spec_layout::{self, Execution, Problem};
use super::{
    CrdVersion, Key, NamespacedName, PAUSE, RECOVER, RECOVERED, RESTART, RESTART_ON, STATE,
};

/// The field manager of our writes.
pub const MANAGER: &str = "mainstay";

pub type RawStream = Raw<Value, Option<RawStatus>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawStatus {
    pub phase: Option<String>,
    pub configuration_hash: Option<String>,
    pub conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    pub key: Key,
    pub uid: Box<str>,
    pub revision: Revision,
    pub generation: i64,
    pub created: Timestamp,
    pub deleting: bool,
    /// The spec as JSON in Go's format: it is passed to Jobs and hashed.
    pub spec: Box<str>,
    pub hash: Box<str>,
    pub canonical_digest: Digest,
    pub execution: Result<Execution, Box<Problem>>,
    pub annotations: Annotations,
    pub phase: Phase,
    pub status: Option<Box<CurrentStatus>>,
    /// The field manager of another operator that wrote the status, and the time of its last write.
    pub other_writer: Option<Box<(String, Timestamp)>>,
}

/// The parsed annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    pub paused: bool,
    pub restart: Option<Box<str>>,
    pub recover: bool,
    /// Consecutive failures, and the time of the last.
    pub recovered: Option<(u32, Timestamp)>,
    pub on_template: bool,
    pub on_secrets: bool,
    /// v1beta1: `arcane/state`.
    pub state: Option<Box<str>>,
}

/// The status on the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentStatus {
    pub hash: Box<str>,
    pub kind: Box<str>,
    pub message: Box<str>,
    /// When the phase last changed, if the CRD keeps that.
    pub since: Option<Timestamp>,
}

impl CurrentStatus {
    pub fn is_error(&self) -> bool {
        self.kind.eq_ignore_ascii_case("error")
    }
}

impl Stream {
    pub fn of(raw: &RawStream, class: &Class) -> Stream {
        let RawStream { metadata, spec, status } = raw;
        let without = match class.crd_version {
            CrdVersion::V1Beta1 => &class.secret_refs[..],
            CrdVersion::V1 => &[],
        };
        let json = go_compatible_json(spec);
        let hash = match class.crd_version {
            CrdVersion::V1 => md5_hex(json.as_bytes()),
            CrdVersion::V1Beta1 => checksum(json.as_bytes()),
        };
        let status = status.as_ref();
        let phase = Phase::of(status.and_then(|s| s.phase.as_deref()).unwrap_or_default());
        let condition = status.and_then(|s| s.conditions.as_deref()?.first());
        let kind = condition.map_or("", |condition| &condition.kind);
        let written_hash = status.and_then(|s| s.configuration_hash.as_deref());
        let message = condition.and_then(|condition| condition.message.as_deref());
        let some = phase != Phase::New || !kind.is_empty();
        let status = some.then(|| {
            Box::new(CurrentStatus {
                hash: written_hash.unwrap_or_default().into(),
                kind: kind.into(),
                message: message.unwrap_or_default().into(),
                since: condition.and_then(|condition| condition.last_transition_time),
            })
        });
        let execution =
            spec_layout::read(spec, &metadata.namespace, class.crd_version).map_err(Box::new);
        Stream {
            key: Key { class: class.name.clone(), object_name: metadata.object_name() },
            revision: metadata.revision(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            canonical_digest: canonical_digest(spec, without),
            spec: json.into(),
            hash: hash.into(),
            execution,
            annotations: annotations(metadata),
            phase,
            status,
            other_writer: other_writer(metadata),
            uid: metadata.uid.as_str().into(),
        }
    }

    /// The error that the status reports, other than the failure of a Job.
    pub fn error_message(&self) -> Option<&str> {
        let status = self.status.as_deref()?;
        let is = status.is_error() && self.phase != Phase::Failed;
        is.then_some(&*status.message)
    }

    pub fn object_name(&self) -> &NamespacedName {
        &self.key.object_name
    }
}

fn annotations(metadata: &ObjectMeta) -> Annotations {
    let is = |name: &str| metadata.annotation(name) == Some("true");
    let on = metadata.annotation(RESTART_ON).unwrap_or_default();
    let on = |what: &str| on.split(',').any(|part| part.trim() == what);
    Annotations {
        paused: is(PAUSE),
        restart: metadata.annotation(RESTART).map(Box::from),
        recover: is(RECOVER),
        recovered: metadata.annotation(RECOVERED).and_then(|text| {
            let (count, at) = text.split_once(' ')?;
            Some((count.parse().ok()?, at.parse().ok()?))
        }),
        on_template: on("template"),
        on_secrets: on("secrets"),
        state: metadata.annotation(STATE).map(Box::from),
    }
}

fn other_writer(metadata: &ObjectMeta) -> Option<Box<(String, Timestamp)>> {
    let writers = metadata.managed_fields.as_deref().unwrap_or_default().iter();
    // Someone who uses kubectl is not an operator.
    let other = |name: &str| name != MANAGER && !name.starts_with("kubectl");
    let others = writers.filter(|w| w.subresource == "status" && other(&w.manager));
    let latest = others.filter_map(|writer| Some((writer.manager.clone(), writer.time?)));
    latest.max_by_key(|(_, time)| *time).map(Box::new)
}
