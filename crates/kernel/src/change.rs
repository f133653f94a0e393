//! Changes are values: a [`Change`] names everything that one decision writes. The store admits or
//! refuses it as a whole.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::blob::BlobWrite;
use crate::error::Class;
use crate::log::AuditPosition;
use crate::telemetry::Trace;
use crate::{Json, Key, Object, Timestamp};

/// Everything that one decision writes. Built by the API and by the driver, committed by
/// [`crate::Store::commit`].
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Makes the change idempotent: a second one with the same command id is refused.
    pub command: Option<CommandRecord>,
    pub write: Option<Write>,
    /// Belongs to the previous change of the same call: both are admitted, or both are refused.
    pub follows: bool,
    /// Revisions that the decision read: refused if one of the objects was written since.
    pub expects: Vec<(Key, i64)>,
    /// The direct dependencies of the written object, all of them.
    pub depends_on: Option<Vec<Edge>>,
    pub work: Option<Work>,
    pub wakes: Vec<Wake>,
    /// Wake what depends on the written object.
    pub wake_dependents: bool,
    /// Wake what the written object depends on.
    pub wake_dependencies: bool,
    pub takes: Vec<Take>,
    pub releases: Vec<Release>,
    /// Leases that must still be held.
    pub leases: Vec<LeaseFence>,
    pub blobs: Vec<BlobWrite>,
    pub cursor: Option<CursorMove>,
    /// Of a change that writes no object: a write has its own event.
    pub event: Option<EventDraft>,
    pub audit: Option<AuditDraft>,
    /// One of the server's own transitions on the way to what a command asked for: its audit entry is
    /// left out, unless `audit.transitions` is `all`.
    pub hop: bool,
    /// Reaches what a command asked for, or fails for good. The driver sets it for an attempt's last change.
    pub settles: bool,
    /// Closes the audit log at this entry, which an archive has.
    pub audit_archived: Option<AuditPosition>,
    /// What led to the change. `None`: what led to the object's current generation.
    pub cause: Option<Cause>,
}

/// The other end of a dependency between two objects, and what the dependency is for: `placed-on`,
/// `secret-of`. The role is empty if that needs no saying. Two objects have one dependency at most.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Edge {
    pub key: Key,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
}

impl Edge {
    pub fn new(key: Key, role: &str) -> Edge {
        Edge { key, role: role.into() }
    }
}

impl From<Key> for Edge {
    fn from(key: Key) -> Edge {
        Edge::new(key, "")
    }
}

impl From<Edge> for Key {
    fn from(edge: Edge) -> Key {
        edge.key
    }
}

/// What led to a change: the command, and the trace in which it was executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// As W3C `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub trace: Option<Trace>,
}

impl Cause {
    pub fn is_empty(&self) -> bool {
        *self == Cause::default()
    }
}

/// The most bytes of an object's spec and status together: every event carries the object, and
/// every informer reads it. Larger data is a blob.
pub const OBJECT_BYTES_MAX: usize = 512 * 1024;

/// How an object is written, and the event of that. Domains make it by a [`crate::typed::Draft`].
#[derive(Debug, Clone)]
pub struct Write {
    pub kind: WriteKind,
    /// The whole new state, with `revision` as read.
    pub object: Object,
    /// What happened: `ready` is the event `mainstay.widget.ready` of a widget.
    pub event: Cow<'static, str>,
}

/// The narrowest statement that covers what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    /// Only phase, status, observed generation: what the driver writes.
    Transition,
    /// Any field may have changed.
    Update,
    Create,
}

impl Write {
    pub fn create(object: Object, event: impl Into<Cow<'static, str>>) -> Write {
        Write { kind: WriteKind::Create, object, event: event.into() }
    }

    pub fn update(object: Object, event: impl Into<Cow<'static, str>>) -> Write {
        Write { kind: WriteKind::Update, object, event: event.into() }
    }

    pub fn transition(object: Object, event: impl Into<Cow<'static, str>>) -> Write {
        Write { kind: WriteKind::Transition, object, event: event.into() }
    }
}

impl From<Write> for Change {
    fn from(write: Write) -> Change {
        Change { write: Some(write), ..Change::default() }
    }
}

/// What a worker or an admin does to a queue row.
#[derive(Debug, Clone)]
pub enum Work {
    /// Extends the lease: it ends that long after the commit, by the store's clock. A note replaces
    /// the row's.
    RenewLease {
        key: Key,
        fence: i64,
        ttl: Duration,
        note: Option<String>,
    },
    /// Ends the attempt.
    Complete {
        key: Key,
        fence: i64,
        outcome: Outcome,
    },
    /// Excludes the row from claims until it is resumed.
    Pause {
        key: Key,
        org: String,
        reason: String,
    },
    Resume {
        key: Key,
    },
}

impl Work {
    pub fn key(&self) -> &Key {
        match self {
            Work::RenewLease { key, .. }
            | Work::Complete { key, .. }
            | Work::Pause { key, .. }
            | Work::Resume { key } => key,
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Done,
    RequeueAt {
        at: Timestamp,
    },
    /// Something that was started outside goes on; the note says what.
    Pending {
        at: Timestamp,
        note: String,
    },
    /// Failed with a transient error.
    Retry {
        at: Timestamp,
        reason: String,
    },
    /// Failed in a way that needs a person.
    Stopped {
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    Urgent,
    Normal,
}

impl Lane {
    /// The stored representation.
    pub fn number(self) -> i16 {
        match self {
            Lane::Urgent => 0,
            Lane::Normal => 1,
        }
    }

    pub fn from_number(number: i16) -> Lane {
        if number == 0 { Lane::Urgent } else { Lane::Normal }
    }
}

/// Requests an attempt for `key`, at `due` or before.
#[derive(Debug, Clone)]
pub struct Wake {
    pub key: Key,
    pub org: String,
    pub lane: Lane,
    pub due: Timestamp,
}

impl Wake {
    /// In the normal lane.
    pub fn new(key: Key, org: &str, due: Timestamp) -> Wake {
        Wake { key, org: org.into(), lane: Lane::Normal, due }
    }

    /// For an object itself.
    pub fn for_object(object: &Object, due: Timestamp) -> Wake {
        Wake::new(object.key.clone(), &object.org, due)
    }
}

/// Moves the position of a reader of the event log. Refused if a later holder of the reader's lease
/// has moved it.
#[derive(Debug, Clone, PartialEq)]
pub struct CursorMove {
    pub name: String,
    /// The last event that was read.
    pub seq: i64,
    /// What the reader needs to continue, besides the number.
    pub detail: Json,
    /// Of the lease under which the reader runs.
    pub fence: i64,
}

/// Reserves `amount` of `counter` for `holder`, if the counter stays within its limit. Taking again
/// replaces the amount. A unique name is a counter with the limit 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Take {
    pub counter: String,
    pub holder: String,
    pub amount: i64,
    pub limit: i64,
}

/// Releases all that `holder` has of `counter`, if anything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Release {
    pub counter: String,
    pub holder: String,
}

#[derive(Debug, Clone)]
pub struct LeaseFence {
    pub name: String,
    pub fence: i64,
}

/// The idempotency record of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Includes the sender's subject, so that it is unique per sender.
    pub id: String,
    /// Of the request, so that one id cannot be used for two requests.
    pub digest: String,
    pub reply: CommandReply,
    /// The object that it has written, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Key>,
}

/// The recorded reply to a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandReply {
    pub status: u16,
    pub body: Json,
}

#[derive(Debug, Clone)]
pub struct EventDraft {
    /// The CloudEvents type, as in `mainstay.widget.ready`.
    pub kind: String,
    pub subject: Key,
    pub org: String,
    /// `None`: the object as the change writes it.
    pub data: Option<Json>,
}

impl EventDraft {
    pub(crate) fn for_object(object: &Object, what: &str) -> EventDraft {
        EventDraft {
            kind: ["mainstay.", object.key.kind(), ".", what].concat(),
            subject: object.key.clone(),
            org: object.org.clone(),
            data: None,
        }
    }
}

impl Change {
    /// The approximate bytes that it writes.
    pub fn bytes(&self) -> usize {
        let object = self.write.as_ref().map_or(0, |write| write.object.bytes());
        // The object, and its event.
        2 * object + self.blobs.iter().map(BlobWrite::bytes).sum::<usize>()
    }

    /// The event of the change: that of its write, its own, or the one that follows from what else it
    /// does. A change that only moves work or positions has none.
    pub fn event(&self) -> Option<EventDraft> {
        if let Some(Write { object, event, .. }) = &self.write {
            return Some(EventDraft::for_object(object, event));
        }
        if let Some(event) = &self.event {
            return Some(event.clone());
        }
        let plain = |kind: &str, subject: Key, org: &str| EventDraft {
            kind: kind.into(),
            subject,
            org: org.into(),
            data: Some(Json::default()),
        };
        match &self.work {
            Some(Work::Pause { key, org, .. }) => {
                return Some(plain("mainstay.work.paused", key.clone(), org));
            }
            Some(Work::Resume { key }) => {
                return Some(plain("mainstay.work.resumed", key.clone(), ""));
            }
            _ => {}
        }
        if let Some(blob) = self.blobs.first() {
            return Some(plain("mainstay.blob.written", blob.key().clone(), ""));
        }
        let counters = self.takes.first().map(|take| &take.counter);
        let counters = counters.or(self.releases.first().map(|release| &release.counter));
        let command = self.command.as_ref().map(|command| match command.digest.as_str() {
            "" => &command.id,
            _ => &command.digest,
        });
        let subject = Key::new("command", command.or(counters)?);
        Some(plain("mainstay.command.executed", subject, ""))
    }
}

/// Who did what, to what, from where, and with what result. Never holds a secret.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, ToSchema)]
pub struct AuditDraft {
    pub actor: String,
    pub action: String,
    /// The object's key, or another name of the target.
    pub target: String,
    pub org: String,
    /// The address of the client; empty for the server's own actions.
    pub origin: String,
    pub outcome: String,
    pub request_id: String,
    /// The relevant fields before and after.
    pub before: Json,
    pub after: Json,
}

/// The result of an admitted change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accepted {
    /// The written object's new revision.
    pub revision: Option<i64>,
    pub event: Option<i64>,
    pub audit: Option<i64>,
}

pub type Verdict = Result<Accepted, Refusal>;

/// Why a change was refused. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("{key} was changed meanwhile (revision {expected} expected, {found} found)")]
    Stale { key: Key, expected: i64, found: i64 },
    #[error("{0} does not exist")]
    Missing(Key),
    #[error("{0} exists already")]
    Exists(Key),
    #[error("{counter} is at its limit: {used} of {limit} used, {asked} more requested")]
    Limit { counter: String, used: i64, limit: i64, asked: i64 },
    #[error("{0} is held by another worker now")]
    FenceLost(String),
    #[error("{key}: spec and status have {bytes} bytes, the limit is {OBJECT_BYTES_MAX}")]
    TooLarge { key: Key, bytes: usize },
    /// The same command was executed before, with this reply.
    #[error("command {id} was executed before")]
    Repeated { id: String, reply: CommandReply },
    #[error("command id {id} was used for a different request")]
    Mismatch { id: String },
}

impl Refusal {
    pub fn class(&self) -> Class {
        match self {
            Refusal::Missing(_) => Class::NotFound,
            Refusal::TooLarge { .. } => Class::Invalid,
            Refusal::Stale { .. }
            | Refusal::Exists(_)
            | Refusal::Limit { .. }
            | Refusal::FenceLost(_)
            | Refusal::Repeated { .. }
            | Refusal::Mismatch { .. } => Class::Conflict,
        }
    }
}
