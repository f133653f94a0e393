//! Commands: the one way in for requests to change something, whatever brings them: REST, the bus, a
//! schedule, another domain.
//!
//! A domain implements [`Command`]: it reads, decides and returns changes. [`Commands::execute`] does
//! the rest: version, permission, replay, visibility of the subject, expected generation, audit
//! entry, cause, commit, and deciding again when what was read became stale.

mod envelope;
mod registry;
mod status;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::change::{AuditDraft, CommandReply};
use crate::identity::{Action, Principal};
use crate::telemetry::Trace;
use crate::{App, Change, Error, Json, Key, Object, Refusal, Result, Timestamp};

pub use envelope::Envelope;
pub use registry::{Answer, CommandSource, Commands, execute, rejection};
pub use status::{CommandStatus, status};

/// What brought a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The address of the client, if there was a connection.
    Http(Option<IpAddr>),
    /// The name of the consumer.
    Bus(String),
    Schedule(Key),
    /// The server itself.
    Internal,
}

impl Origin {
    /// As it is written into the audit log.
    pub fn label(&self) -> String {
        match self {
            Origin::Http(address) => address.map(|address| address.to_string()).unwrap_or_default(),
            Origin::Bus(consumer) => format!("bus {consumer}"),
            Origin::Schedule(key) => key.to_string(),
            Origin::Internal => String::new(),
        }
    }
}

/// Who sends a command, and from where.
#[derive(Debug, Clone, Copy)]
pub struct Sender<'a> {
    pub principal: &'a Principal,
    pub origin: &'a Origin,
    /// For the audit log and error messages.
    pub request_id: &'a str,
    pub trace: Option<Trace>,
}

/// What a command decides upon.
pub struct CommandContext<'a> {
    pub app: &'a App,
    pub principal: &'a Principal,
    pub origin: &'a Origin,
    pub now: Timestamp,
    pub request_id: &'a str,
    /// What the command is about.
    pub key: Option<&'a Key>,
    /// The object of that key, as it was just read.
    pub subject: Option<Arc<Object>>,
}

impl CommandContext<'_> {
    /// What the command is about.
    pub fn key(&self) -> Result<&Key> {
        self.key.ok_or_else(|| Error::invalid("subject", "is required: kind/id"))
    }

    /// The object that the command is about.
    pub fn subject(&self) -> Result<&Object> {
        self.key()?;
        self.subject.as_deref().ok_or_else(|| Error::internal("a command", "reads no subject"))
    }
}

/// A command with types of its own.
#[async_trait]
pub trait Command: Send + Sync + 'static {
    /// As in `widget.create`.
    const NAME: &'static str;
    const VERSIONS: RangeInclusive<u32> = 1..=1;
    const ACTION: Action;
    /// Whether the object of the subject's key must exist and be visible to the sender.
    const READS_SUBJECT: bool = true;
    type Body: DeserializeOwned + Send;
    type Reply: Serialize + Send;

    /// Reads what it needs, never writes. Called again when what it read became stale.
    async fn decide(
        &self,
        cx: &CommandContext<'_>,
        body: Self::Body,
    ) -> Result<Decided<Self::Reply>>;
}

/// The body of a command that needs none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// What a command writes and replies.
pub struct Decided<R> {
    /// All of them are admitted, or none. Empty if there is nothing to change.
    pub changes: Vec<Change>,
    pub reply: R,
    pub status: u16,
    /// Merged with the sender into the audit entry. None for what machines report.
    pub audit: Option<AuditFields>,
    pub on_refused: Option<OnRefused>,
}

/// Decides what a refusal means: `Ok` to decide again, or the error for the sender. Without it, the
/// command is decided again if what it read is stale.
pub type OnRefused = Box<dyn Fn(Refusal) -> Result<()> + Send + Sync>;

/// The part of an audit entry that only the command knows.
#[derive(Debug, Clone, Default)]
pub struct AuditFields {
    /// The object's key, or another name of the target.
    pub target: String,
    pub org: String,
    pub before: Json,
    pub after: Json,
}

impl AuditFields {
    /// Of a change to this object.
    pub fn of(object: &Object) -> AuditFields {
        AuditFields {
            target: object.key.to_string(),
            org: object.org.clone(),
            ..AuditFields::default()
        }
    }

    fn entry(self, action: &str, sender: &Sender<'_>) -> AuditDraft {
        let AuditFields { target, org, before, after } = self;
        AuditDraft {
            actor: sender.principal.subject.clone(),
            action: action.into(),
            target,
            org,
            origin: sender.origin.label(),
            outcome: "done".into(),
            request_id: sender.request_id.into(),
            before,
            after,
        }
    }
}

impl<R> Decided<R> {
    pub fn new(status: u16, reply: R, audit: impl Into<Option<AuditFields>>) -> Decided<R> {
        Decided { changes: Vec::new(), reply, status, audit: audit.into(), on_refused: None }
    }

    pub fn change(mut self, change: Change) -> Decided<R> {
        self.changes.push(change);
        self
    }

    pub fn on_refused(
        mut self,
        on_refused: impl Fn(Refusal) -> Result<()> + Send + Sync + 'static,
    ) -> Decided<R> {
        self.on_refused = Some(Box::new(on_refused));
        self
    }
}

/// A command whose types are erased, or that has none: kinds that come and go at run time.
#[async_trait]
pub trait AnyCommand: Send + Sync {
    fn name(&self) -> &str;
    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }
    fn action(&self) -> Action;
    fn reads_subject(&self) -> bool {
        true
    }

    /// Returns the subject, if it exists and the sender may see it. What was deleted is history.
    async fn subject(
        &self,
        app: &App,
        principal: &Principal,
        key: &Key,
    ) -> Result<Option<Arc<Object>>> {
        let found = app.store.object(key).await?;
        let there = |object: &Arc<Object>| {
            object.deleted_at.is_none() && crate::http::can_see(principal, object)
        };
        Ok(found.filter(there))
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>>;

    /// Completes a reply with what is not stored, such as a secret that is derived from a key.
    fn complete(&self, _: &App, reply: CommandReply) -> Result<CommandReply> {
        Ok(reply)
    }
}

#[async_trait]
impl<C: Command> AnyCommand for C {
    fn name(&self) -> &str {
        C::NAME
    }

    fn versions(&self) -> RangeInclusive<u32> {
        C::VERSIONS
    }

    fn action(&self) -> Action {
        C::ACTION
    }

    fn reads_subject(&self) -> bool {
        C::READS_SUBJECT
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>> {
        let body = crate::http::parse_json(body.text().as_bytes())?;
        let Decided { changes, reply, status, audit, on_refused } =
            Command::decide(self, cx, body).await?;
        Ok(Decided { changes, reply: Json::encode(&reply), status, audit, on_refused })
    }
}
