//! A stream definition, as much of it as decisions need.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::class::Class;
use super::hash::{Digest, checksum, go_json, md5_hex, normal};
use super::layout::{self, Execution, Problem};
use super::meta::{Condition, RawMeta, Revision};
use super::phase::Phase;
use super::{Key, Line, PAUSE, Place, RECOVER, RECOVERED, RESTART, RESTART_ON, STATE};

/// Our name in the fields that we write.
pub const MANAGER: &str = "mainstay";

#[derive(Debug, Clone, Deserialize)]
pub struct RawStream {
    pub metadata: RawMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: Option<RawStatus>,
}

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
    /// As Go writes it: what Jobs are given, and what the hash is of.
    pub spec: Box<str>,
    pub hash: Box<str>,
    pub normal: Digest,
    pub execution: Result<Execution, Box<Problem>>,
    pub wishes: Wishes,
    pub phase: Phase,
    pub written: Option<Box<Written>>,
    /// Another operator's name and when it wrote the status last, if one did.
    pub other_writer: Option<Box<(String, Timestamp)>>,
}

/// What annotations ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    pub paused: bool,
    pub restart: Option<Box<str>>,
    pub recover: bool,
    /// How often it has been started again, and when it last was.
    pub recovered: Option<(u32, Timestamp)>,
    pub on_template: bool,
    pub on_secrets: bool,
    /// v1beta1: `arcane/state`.
    pub state: Option<Box<str>>,
}

/// The status, as it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub hash: Box<str>,
    pub kind: Box<str>,
    pub message: Box<str>,
    /// When the phase last changed, where the CRD keeps that.
    pub since: Option<Timestamp>,
}

impl Written {
    pub fn is_trouble(&self) -> bool {
        self.kind.eq_ignore_ascii_case("error")
    }
}

impl Stream {
    pub fn of(raw: RawStream, class: &Class) -> Stream {
        let RawStream { metadata, spec, status } = raw;
        let without = match class.line {
            Line::Beta => &class.secret_refs[..],
            Line::V1 => &[],
        };
        let json = go_json(&spec);
        let hash = match class.line {
            Line::V1 => md5_hex(json.as_bytes()),
            Line::Beta => checksum(json.as_bytes()),
        };
        let status = status.unwrap_or_default();
        let phase = Phase::of(status.phase.as_deref().unwrap_or_default());
        let condition = status.conditions.unwrap_or_default().into_iter().next();
        let condition = condition.unwrap_or_default();
        let some = phase != Phase::New || !condition.kind.is_empty();
        let written = some.then(|| {
            Box::new(Written {
                hash: status.configuration_hash.unwrap_or_default().into(),
                kind: condition.kind.into(),
                message: condition.message.unwrap_or_default().into(),
                since: condition.last_transition_time,
            })
        });
        let execution = layout::read(&spec, &metadata.namespace, class.line).map_err(Box::new);
        Stream {
            key: Key { class: class.name.clone(), place: metadata.place() },
            revision: metadata.revision(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            normal: normal(&spec, without),
            spec: json.into(),
            hash: hash.into(),
            execution,
            wishes: wishes(&metadata),
            phase,
            written,
            other_writer: other_writer(&metadata),
            uid: metadata.uid.into(),
        }
    }

    /// What its operator says is in its way; how it failed is told by the phase.
    pub fn trouble(&self) -> Option<&str> {
        let written = self.written.as_deref()?;
        let is = written.is_trouble() && self.phase != Phase::Failed;
        is.then_some(&*written.message)
    }

    pub fn place(&self) -> &Place {
        &self.key.place
    }
}

fn wishes(metadata: &RawMeta) -> Wishes {
    let is = |name: &str| metadata.annotation(name) == Some("true");
    let on = metadata.annotation(RESTART_ON).unwrap_or_default();
    let on = |what: &str| on.split(',').any(|part| part.trim() == what);
    Wishes {
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

fn other_writer(metadata: &RawMeta) -> Option<Box<(String, Timestamp)>> {
    let writers = metadata.managed_fields.as_deref().unwrap_or_default().iter();
    // Someone at a command line is no operator.
    let other = |name: &str| name != MANAGER && !name.starts_with("kubectl");
    let others = writers.filter(|w| w.subresource == "status" && other(&w.manager));
    let latest = others.filter_map(|writer| Some((writer.manager.clone(), writer.time?)));
    latest.max_by_key(|(_, time)| *time).map(Box::new)
}
