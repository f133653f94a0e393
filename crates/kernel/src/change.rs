//! Changes are values: a [`Change`] names everything that one decision writes. The store admits or
//! refuses it as a whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Class;
use crate::{Json, Key, Object, Timestamp};

/// Everything that one decision writes. Built by the API and by the driver, committed by
/// [`crate::Store::commit`].
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Makes the change idempotent: a second one with the same command id is refused.
    pub command: Option<CommandRecord>,
    pub write: Option<Write>,
    /// Builds on the previous change of the same call: refused if that one is.
    pub follows: bool,
    /// Revisions that the decision read: refused if one of the objects was written since.
    pub expects: Vec<(Key, i64)>,
    /// The direct dependencies of the written object, all of them.
    pub depends_on: Option<Vec<Key>>,
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
    pub event: Option<EventDraft>,
    pub audit: Option<AuditDraft>,
}

/// How an object is written. Each variant carries the whole new state, with `revision` as read.
#[derive(Debug, Clone)]
pub enum Write {
    Create(Object),
    /// Any field may have changed.
    Update(Object),
    /// Only phase, status, observed generation: what the driver writes.
    Transition(Object),
}

impl Write {
    pub fn object(&self) -> &Object {
        match self {
            Write::Create(object) | Write::Update(object) | Write::Transition(object) => object,
        }
    }
}

/// What a worker or an admin does to a queue row.
#[derive(Debug, Clone)]
pub enum Work {
    /// Extends the lease until then.
    RenewLease {
        key: Key,
        fence: i64,
        until: Timestamp,
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

/// Reserves `amount` of `counter` for `holder`, if the counter stays within its limit. Taking again
/// replaces the amount. A unique name is a counter with the limit 1.
#[derive(Debug, Clone)]
pub struct Take {
    pub counter: String,
    pub holder: String,
    pub amount: i64,
    pub limit: i64,
}

/// Releases all that `holder` has of `counter`, if anything.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct CommandRecord {
    /// Includes the sender's subject, so that it is unique per sender.
    pub id: String,
    /// Of the request, so that one id cannot be used for two requests.
    pub digest: String,
    pub answer: CommandReply,
}

/// The recorded reply to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// `object` becomes what the change writes.
    pub fn for_object(object: &Object, what: &str) -> EventDraft {
        EventDraft {
            kind: format!("mainstay.{}.{what}", object.key.kind()),
            subject: object.key.clone(),
            org: object.org.clone(),
            data: None,
        }
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
    /// The same command was executed before, with this reply.
    #[error("command {id} was executed before")]
    Repeated { id: String, answer: CommandReply },
    #[error("command id {id} was used for a different request")]
    Mismatch { id: String },
}

impl Refusal {
    pub fn class(&self) -> Class {
        match self {
            Refusal::Missing(_) => Class::NotFound,
            Refusal::Stale { .. }
            | Refusal::Exists(_)
            | Refusal::Limit { .. }
            | Refusal::FenceLost(_)
            | Refusal::Repeated { .. }
            | Refusal::Mismatch { .. } => Class::Conflict,
        }
    }
}
