//! Changes are values: a [`Change`] names everything that one decision writes, and the store
//! takes it whole or refuses it whole.

use serde::{Deserialize, Serialize};

use crate::error::Class;
use crate::{Json, Key, Object, Timestamp};

/// Everything that one decision writes. Built by the API and by the driver, carried out by
/// [`crate::Store::commit`].
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Carried out once, whichever way and however often it comes in.
    pub command: Option<CommandRecord>,
    pub write: Option<Write>,
    /// It builds on the change before it in the same call: refused if that one is.
    pub follows: bool,
    /// What the decision read: refused if one of them has been written since.
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

/// How an object is written. Each carries the whole new state, at `revision` as it was read.
#[derive(Debug, Clone)]
pub enum Write {
    Create(Object),
    /// Everything may have changed.
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

/// What a worker, or an admin, does to a row of the queue.
#[derive(Debug, Clone)]
pub enum Work {
    /// Still at it: the lease runs until then.
    RenewLease {
        key: Key,
        fence: i64,
        until: Timestamp,
    },
    /// This look is over.
    Complete {
        key: Key,
        fence: i64,
        outcome: Outcome,
    },
    /// Nobody looks at it until it is resumed.
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

/// How a look at an object ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Done,
    RequeueAt {
        at: Timestamp,
    },
    /// It failed in a way that may pass.
    Retry {
        at: Timestamp,
        reason: String,
    },
    /// It needs a person.
    Stopped {
        reason: String,
    },
}

#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    Urgent,
    Normal,
}

impl Lane {
    /// As the stores write it.
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

/// Someone should look at `key`, at `due` or before.
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

/// `holder` has `amount` of `counter`, if the counter stays within its limit. Taking again
/// replaces what was taken. A unique name is a counter with the limit 1.
#[derive(Debug, Clone)]
pub struct Take {
    pub counter: String,
    pub holder: String,
    pub amount: i64,
    pub limit: i64,
}

/// `holder` gives back all that it has of `counter`; nothing if it has none.
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

/// A command as its sender identified it.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandRecord {
    /// Unique within its sender: the sender's subject is part of it.
    pub id: String,
    /// Of the request, so that one id cannot stand for two requests.
    pub digest: String,
    pub answer: CommandReply,
}

/// What a command was answered with.
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
    pub fn of(object: &Object, what: &str) -> EventDraft {
        EventDraft {
            kind: format!("mainstay.{}.{what}", object.key.kind()),
            subject: object.key.clone(),
            org: object.org.clone(),
            data: None,
        }
    }
}

/// Who did what, on what, from where, and how it ended. Never holds a secret.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, utoipa::ToSchema)]
pub struct AuditDraft {
    pub actor: String,
    pub action: String,
    /// The object's key, or what else was acted on.
    pub target: String,
    pub org: String,
    /// The address that the request came from; empty for our own acts.
    pub origin: String,
    pub outcome: String,
    pub request_id: String,
    /// The fields that matter, as they were and as they are.
    pub before: Json,
    pub after: Json,
}

/// What an accepted change became.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accepted {
    /// The written object's new revision.
    pub revision: Option<i64>,
    pub event: Option<i64>,
    pub audit: Option<i64>,
}

pub type Verdict = Result<Accepted, Refusal>;

/// Why a change was not carried out. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("{key} was changed meanwhile (revision {expected} expected, {found} found)")]
    Stale { key: Key, expected: i64, found: i64 },
    #[error("{0} does not exist")]
    Missing(Key),
    #[error("{0} exists already")]
    Exists(Key),
    #[error("{counter} is at its limit: {used} of {limit} used, {asked} more asked for")]
    Limit { counter: String, used: i64, limit: i64, asked: i64 },
    #[error("{0} is being worked on by someone else by now")]
    FenceLost(String),
    /// The same command was carried out before and answered this.
    #[error("command {id} was carried out before")]
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
