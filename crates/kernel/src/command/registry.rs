//! The registered commands, and their execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use super::{AnyCommand, AuditFields, CommandContext, Decided, Envelope, OnRefused, Sender};
use crate::change::{Cause, Change, CommandRecord, CommandReply, EventDraft, Refusal};
use crate::log::COMMAND_REJECTED;
use crate::{App, Error, Json, Key, Result};

/// How often a command is decided when what it read becomes stale.
const TRIES: usize = 5;
/// A rejection may quote what the sender sent, which may be large: it is recorded, audited, an event and
/// an answer.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const FIELD_BYTES_MAX: usize = 256;

/// Commands that a domain computes: their kinds come and go while the server runs.
pub trait CommandSource: Send + Sync {
    fn find(&self, name: &str) -> Option<Arc<dyn AnyCommand>>;
    fn names(&self) -> Vec<String>;
}

/// The commands of all domains. Cheap to clone.
#[derive(Clone, Default)]
pub struct Commands(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: RwLock<Registry>,
    complete: watch::Sender<bool>,
}

#[derive(Default)]
struct Registry {
    commands: BTreeMap<String, Arc<dyn AnyCommand>>,
    sources: Vec<Arc<dyn CommandSource>>,
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub reply: CommandReply,
    /// The object that it has written, if it has.
    pub subject: Option<Key>,
    /// The command was carried out before.
    pub replayed: bool,
}

impl Commands {
    /// Adds a command. A name that is taken is an error of the program.
    pub fn add(&self, command: Arc<dyn AnyCommand>) -> Result<()> {
        let name = command.name().to_owned();
        if self.find(&name).is_some()
            || self.0.registry.write().commands.insert(name.clone(), command).is_some()
        {
            return Err(Error::internal(format!("command {name}"), "it is registered twice"));
        }
        Ok(())
    }

    pub fn add_source(&self, source: Arc<dyn CommandSource>) {
        self.0.registry.write().sources.push(source);
    }

    /// Says that those of all domains are registered.
    pub fn set_complete(&self) {
        self.0.complete.send_replace(true);
    }

    /// Waits until those of all domains are registered: before, one that is not found may come yet.
    pub async fn complete(&self) {
        let mut complete = self.0.complete.subscribe();
        let all = complete.wait_for(|complete| *complete).await;
        all.expect("the sender lives as long as this");
    }

    pub fn find(&self, name: &str) -> Option<Arc<dyn AnyCommand>> {
        let registry = self.0.registry.read();
        let computed = || registry.sources.iter().find_map(|source| source.find(name));
        registry.commands.get(name).cloned().or_else(computed)
    }

    /// The names of all commands, in order.
    pub fn names(&self) -> Vec<String> {
        let registry = self.0.registry.read();
        let computed = registry.sources.iter().flat_map(|source| source.names());
        let mut names: Vec<String> = registry.commands.keys().cloned().chain(computed).collect();
        names.sort();
        names
    }

    /// Carries out a command.
    pub async fn execute(
        &self,
        app: &App,
        sender: Sender<'_>,
        envelope: &Envelope,
    ) -> Result<Answer> {
        let Envelope { name, version, .. } = envelope;
        let command = self.find(name).ok_or_else(|| {
            let near = nearest(name, &self.names());
            Error::invalid("type", format!("`{name}` is not a command{near}"))
        })?;
        if !command.versions().contains(version) {
            let (first, last) = command.versions().into_inner();
            let message = format!("{name} has versions {first} to {last}, not {version}");
            return Err(Error::invalid("version", message));
        }
        execute(app, &*command, sender, envelope).await
    }

    /// Records that a command from the bus was refused, so that a redelivery is refused too: its
    /// sender has the refusal. Of a sender who is not known, or a command without an id, only the audit
    /// log and the event tell. Returns the answer that counts: if the command was carried out before, that
    /// of the record.
    pub async fn reject(
        &self,
        app: &App,
        sender: Sender<'_>,
        envelope: &Envelope,
        why: &Error,
    ) -> Result<Answer> {
        let known = !sender.principal.subject.is_empty();
        let record = envelope.record_key(sender.principal).ok().flatten().filter(|_| known);
        let reply = rejection(why);
        let target = envelope.subject.as_ref().map(Key::to_string).unwrap_or_default();
        let audit = AuditFields { target, after: reply.body.clone(), ..AuditFields::default() };
        let mut audit = audit.entry(&envelope.name, &sender);
        audit.outcome = "rejected".into();
        if !known {
            audit.actor = "unknown".into();
        }
        let digest = record.as_ref().map_or("unknown", |(_, digest)| digest);
        let event = EventDraft {
            kind: COMMAND_REJECTED.into(),
            // Not the object: the last event of an object has its state, and it may be another's.
            subject: Key::new("command", digest),
            org: sender.principal.org.clone(),
            data: Some(reply.body.clone()),
        };
        let record_of =
            |(id, digest)| CommandRecord { id, digest, reply: reply.clone(), subject: None };
        let change = Change {
            command: record.clone().map(record_of),
            event: Some(event),
            audit: Some(audit),
            cause: Some(Cause { command: envelope.id.clone(), trace: sender.trace }),
            ..Change::default()
        };
        let commit = async |change| {
            crate::store::commit(app.store.as_ref(), change, app.ambient.now()).await.map(drop)
        };
        match commit(change.clone()).await {
            Err(Error::Refused(Refusal::Repeated { reply, .. })) => {
                let done = replay(app, record.as_ref()).await?;
                return Ok(done.unwrap_or(Answer { reply, subject: None, replayed: true }));
            }
            // The id stands for another command, which keeps its record.
            Err(Error::Refused(Refusal::Mismatch { .. })) => {
                commit(Change { command: None, ..change }).await?;
            }
            done => done?,
        }
        Ok(Answer { reply, subject: None, replayed: false })
    }
}

/// The recorded reply to a command that was refused.
pub fn rejection(why: &Error) -> CommandReply {
    let message = why.public_message();
    let message = &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)];
    let mut body = serde_json::json!({ "error": why.class().label(), "message": message });
    if let Error::Invalid { field, .. } = why {
        body["field"] = field[..field.floor_char_boundary(FIELD_BYTES_MAX)].into();
    }
    CommandReply { status: crate::http::status(why).as_u16(), body: Json::encode(&body) }
}

/// Carries out a command that was found: by its name, or by the route of an API.
pub async fn execute(
    app: &App,
    command: &dyn AnyCommand,
    sender: Sender<'_>,
    envelope: &Envelope,
) -> Result<Answer> {
    if !command.action().allows(sender.principal) {
        return Err(Error::Forbidden(format!("{} is not allowed to you", command.name())));
    }
    let record = envelope.record_key(sender.principal)?;
    let complete =
        |answer: Answer| Ok(Answer { reply: command.complete(app, answer.reply)?, ..answer });
    if let Some(before) = replay(app, record.as_ref()).await? {
        return complete(before);
    }
    match decide_and_commit(app, command, sender, envelope, record.as_ref()).await {
        // The same command may have been carried out concurrently.
        Err(error) => match replay(app, record.as_ref()).await.ok().flatten() {
            Some(before) => complete(before),
            None => Err(error),
        },
        Ok(answer) => complete(answer),
    }
}

async fn replay(app: &App, record: Option<&(String, String)>) -> Result<Option<Answer>> {
    let Some((id, digest)) = record else { return Ok(None) };
    match app.store.command(id).await? {
        None => Ok(None),
        Some(done) if done.digest == *digest => {
            Ok(Some(Answer { reply: done.reply, subject: done.subject, replayed: true }))
        }
        Some(done) => Err(Refusal::Mismatch { id: done.id }.into()),
    }
}

async fn decide_and_commit(
    app: &App,
    command: &dyn AnyCommand,
    sender: Sender<'_>,
    envelope: &Envelope,
    record: Option<&(String, String)>,
) -> Result<Answer> {
    let Sender { principal, origin, trace, request_id } = sender;
    let mut tries = 0;
    loop {
        tries += 1;
        let subject = match &envelope.subject {
            Some(key) if command.reads_subject() => {
                let found = command.subject(app, principal, key).await?;
                let subject = found.ok_or_else(|| Error::NotFound(key.to_string()))?;
                check_generation(envelope, key, subject.generation)?;
                Some(subject)
            }
            _ => None,
        };
        let now = app.ambient.now();
        let key = envelope.subject.as_ref();
        let cx = CommandContext { app, principal, origin, now, request_id, key, subject };
        let Decided { mut changes, reply, status, audit, on_refused } =
            command.decide(&cx, &envelope.body).await?;
        let reply = CommandReply { status, body: reply };
        if changes.is_empty() && record.is_none() {
            return Ok(Answer { reply, subject: None, replayed: false });
        }
        if changes.is_empty() {
            changes.push(Change::default());
        }
        let cause = Cause { command: envelope.id.clone(), trace };
        for (n, change) in changes.iter_mut().enumerate() {
            change.follows = n > 0;
            change.hop = false;
            change.cause.get_or_insert_with(|| cause.clone());
        }
        let first = &mut changes[0];
        if let Some(audit) = audit {
            first.audit = Some(audit.entry(command.name(), &sender));
        }
        let subject = first.write.as_ref().map(|write| write.object.key.clone());
        first.command = record.map(|(id, digest)| CommandRecord {
            id: id.clone(),
            digest: digest.clone(),
            reply: reply.clone(),
            subject: subject.clone(),
        });
        let verdicts = app.store.commit_all(changes, now).await?;
        match verdicts.into_iter().find_map(Result::err) {
            None => return Ok(Answer { reply, subject, replayed: false }),
            // The caller finds the record.
            Some(refusal @ Refusal::Repeated { .. }) => return Err(refusal.into()),
            Some(refusal) if tries >= TRIES => return Err(refusal.into()),
            Some(refusal) => refused(on_refused.as_ref(), refusal)?,
        }
    }
}

fn refused(on_refused: Option<&OnRefused>, refusal: Refusal) -> Result<()> {
    match (on_refused, refusal) {
        (_, Refusal::Stale { .. }) => Ok(()),
        (Some(on_refused), refusal) => on_refused(refusal),
        (None, refusal) => Err(refusal.into()),
    }
}

fn check_generation(envelope: &Envelope, key: &Key, found: i64) -> Result<()> {
    match envelope.expected_generation {
        Some(expected) if expected != found => Err(Error::Conflict(format!(
            "{key} has generation {found}, not {expected}: it was changed; read it again"
        ))),
        _ => Ok(()),
    }
}

/// A hint for a name that was misspelt.
fn nearest(name: &str, names: &[String]) -> String {
    let near = names.iter().map(|known| (strsim::jaro_winkler(name, known), known));
    let near = near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.8);
    near.map(|(_, known)| format!("; did you mean `{known}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_is_short_however_long_what_it_quotes_is() {
        let long = "é".repeat(350_000);
        let body = rejection(&Error::invalid(long.as_str(), long.as_str())).body;
        let body: serde_json::Value = body.parse().expect("JSON");
        let len = |name: &str| body[name].as_str().map(str::len);
        assert_eq!((len("field"), len("message")), (Some(256), Some(4096)));
    }
}
