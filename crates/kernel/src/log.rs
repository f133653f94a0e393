//! The two logs: events (what changed) and audit (who did it, hash-chained).
//! Both are numbered in the order of commits.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::blob::BlobWrite;
use crate::change::{
    AuditDraft, Cause, Change, CommandRecord, Edge, EventDraft, Release, Take, Work,
};
use crate::telemetry::Trace;
use crate::{Json, Key, Timestamp};

/// What the kind of an event ends with that says how far a step is.
const PROGRESS: &str = ".progress";

/// The type of the event that says that a command was refused.
pub const COMMAND_REJECTED: &str = "mainstay.command.rejected";

crate::labels! {
    /// How far a command is.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CommandState {
        /// It is durable, and not yet done.
        Accepted = "accepted",
        Progress = "progress",
        /// The object is what was asked for, or has failed for good: its phase tells.
        Done = "done",
        Rejected = "rejected",
        /// A later command changed the object before this one was done.
        Superseded = "superseded",
    }
}

/// An event with its position in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub seq: i64,
    pub kind: String,
    pub subject: Key,
    pub org: String,
    pub at: Timestamp,
    pub data: Json,
    pub cause: Cause,
    /// What else its change wrote; none for most transitions.
    pub effects: Option<Effects>,
}

impl Event {
    /// Whether it says how far a step is, without a new state of the object.
    pub fn is_progress(&self) -> bool {
        self.kind.ends_with(PROGRESS)
    }

    /// How far the command is that led to the event; `None` if none did.
    pub fn command_state(&self) -> Option<CommandState> {
        #[derive(Deserialize)]
        struct Observed {
            generation: i64,
            observed: i64,
        }
        self.cause.command.as_ref()?;
        let effects = self.effects.as_ref();
        if self.kind == COMMAND_REJECTED {
            Some(CommandState::Rejected)
        } else if effects.is_some_and(|effects| effects.settles) {
            Some(CommandState::Done)
        } else if effects.is_some_and(|effects| effects.command.is_some()) {
            // What is not reconciled is as it was asked for at once.
            let object = serde_json::from_str(self.data.text()).ok();
            let waits =
                object.is_some_and(|Observed { generation, observed }| observed < generation);
            Some(if waits { CommandState::Accepted } else { CommandState::Done })
        } else {
            Some(CommandState::Progress)
        }
    }

    /// The effects as they are stored.
    pub fn effects_text(&self) -> Option<String> {
        let effects = self.effects.as_ref()?;
        Some(serde_json::to_string(effects).expect("our own types serialise"))
    }
}

/// What a change wrote apart from the object in its event's data. Together they say all of it but
/// queue rows, leases and cursors, so that the log can be replayed into an empty store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Effects {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Vec<Edge>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<Take>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<Release>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobEffect>,
    /// The reason for which work was paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_archived: Option<AuditPosition>,
    /// The object is what its command asked for, or has failed for good.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub settles: bool,
}

/// A blob that was written, or removed if there is no digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlobEffect {
    pub key: Key,
    /// None: all blobs of the object were removed.
    pub name: Option<String>,
    pub digest: Option<String>,
    /// How many parts the whole blob has.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub parts: i32,
}

fn one() -> i32 {
    1
}

fn is_one(parts: &i32) -> bool {
    *parts == 1
}

impl Effects {
    pub fn of(change: &Change) -> Option<Effects> {
        let blob = |write: &BlobWrite| match write {
            BlobWrite::Put { key, name, data, .. } => BlobEffect {
                key: key.clone(),
                name: Some(name.clone()),
                digest: Some(data.digest.clone()),
                parts: data.parts,
            },
            BlobWrite::Remove { key, name } => {
                BlobEffect { key: key.clone(), name: name.clone(), digest: None, parts: 1 }
            }
        };
        let paused = match &change.work {
            Some(Work::Pause { reason, .. }) => Some(reason.clone()),
            _ => None,
        };
        let effects = Effects {
            depends_on: change.depends_on.clone(),
            takes: change.takes.clone(),
            releases: change.releases.clone(),
            command: change.command.clone(),
            blobs: change.blobs.iter().map(blob).collect(),
            paused,
            resumed: matches!(change.work, Some(Work::Resume { .. })),
            audit_archived: change.audit_archived.clone(),
            settles: change.settles,
        };
        (effects != Effects::default()).then_some(effects)
    }
}

/// [`Event`] as CloudEvents 1.0 in its JSON form.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, utoipa::ToSchema)]
pub struct CloudEvent {
    pub specversion: String,
    pub id: String,
    pub source: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub subject: Key,
    pub time: Timestamp,
    pub datacontenttype: String,
    /// Extension attributes: the position in the log, and the organisation.
    pub sequence: i64,
    pub org: String,
    /// Extension attributes: what led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commandid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub traceparent: Option<Trace>,
    /// Extension attribute: how far that command is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub commandstate: Option<CommandState>,
    pub data: Json,
}

impl From<Event> for CloudEvent {
    fn from(event: Event) -> CloudEvent {
        let commandstate = event.command_state();
        CloudEvent {
            specversion: "1.0".into(),
            id: event.seq.to_string(),
            source: "/mainstay".into(),
            kind: event.kind,
            subject: event.subject,
            time: event.at,
            datacontenttype: "application/json".into(),
            sequence: event.seq,
            org: event.org,
            commandid: event.cause.command,
            traceparent: event.cause.trace,
            commandstate,
            data: event.data,
        }
    }
}

/// Selects events. All given conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// The kind of the object, as in `widget`.
    pub kind: Option<String>,
    pub subject: Option<Key>,
    pub org: Option<String>,
}

impl EventFilter {
    /// Whether an event matches. The SQL of the stores must agree with this.
    pub fn matches(&self, event: &Event) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == event.subject.kind())
            && self.subject.as_ref().is_none_or(|subject| *subject == event.subject)
            && self.org.as_deref().is_none_or(|org| org == event.org)
    }
}

/// An audit entry with its position in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditEntry {
    pub seq: i64,
    pub at: Timestamp,
    pub entry: AuditDraft,
    /// SHA-256 over the previous hash and the fields above; hexadecimal.
    pub hash: String,
}

#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub target: Option<String>,
    pub org: Option<String>,
    /// Entries after this number.
    pub after: i64,
    /// Newest first, from before this number.
    pub before: Option<i64>,
}

/// A place in the audit log: the number and the hash of an entry. Before the first one by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditPosition {
    pub seq: i64,
    pub hash: String,
}

impl Default for AuditPosition {
    fn default() -> AuditPosition {
        AuditPosition { seq: 0, hash: "0".repeat(64) }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// Which of the server's own transitions have an audit entry. `command`: what a command led to, as
    /// ready, failed or deleted. `all`: every phase on the way to it, too.
    pub transitions: AuditTransitions,
}

/// Which of the server's own transitions have an audit entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditTransitions {
    #[default]
    Command,
    All,
}

impl AuditConfig {
    /// Leaves out the entries that are not wanted.
    pub fn apply(self, changes: &mut [Change]) {
        if self.transitions == AuditTransitions::Command {
            for change in changes.iter_mut().filter(|change| change.hop) {
                change.audit = None;
            }
        }
    }
}

/// The last sequence number of both logs, and the last hash of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LogHeads {
    pub event_seq: i64,
    pub audit_seq: i64,
    pub audit_hash: String,
    /// The last entry that is in an archive and no longer here.
    #[serde(default)]
    pub archived: AuditPosition,
}

impl Default for LogHeads {
    fn default() -> LogHeads {
        LogHeads::starting_after(&AuditPosition::default())
    }
}

impl LogHeads {
    pub(crate) fn starting_after(position: &AuditPosition) -> LogHeads {
        let AuditPosition { seq, hash } = position.clone();
        LogHeads { event_seq: 0, audit_seq: seq, audit_hash: hash, archived: position.clone() }
    }

    /// Closes the audit log at an entry. A copy that is made from the logs has none of the entries
    /// before, and continues from there.
    pub fn archive(&mut self, position: &AuditPosition) {
        if self.audit_seq < position.seq {
            (self.audit_seq, self.audit_hash) = (position.seq, position.hash.clone());
        }
        if self.archived.seq < position.seq {
            self.archived.clone_from(position);
        }
    }

    pub fn append_event(&mut self, draft: EventDraft, data: Json, at: Timestamp) -> Event {
        self.event_seq += 1;
        let EventDraft { kind, subject, org, .. } = draft;
        let (cause, effects) = (Cause::default(), None);
        Event { seq: self.event_seq, kind, subject, org, at, data, cause, effects }
    }

    pub fn append_audit(&mut self, entry: AuditDraft, at: Timestamp) -> AuditEntry {
        self.audit_seq += 1;
        self.audit_hash = chain_hash(&self.audit_hash, self.audit_seq, at, &entry);
        AuditEntry { seq: self.audit_seq, at, entry, hash: self.audit_hash.clone() }
    }
}

fn chain_hash(before: &str, seq: i64, at: Timestamp, entry: &AuditDraft) -> String {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(seq.to_be_bytes());
    hash.update(at.millis().to_be_bytes());
    let AuditDraft { actor, action, target, org, origin, outcome, request_id, before, after } =
        entry;
    for field in [actor, action, target, org, origin, outcome, request_id] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    for field in [before, after] {
        hash.update((field.text().len() as u64).to_be_bytes());
        hash.update(field.text());
    }
    format!("{:x}", hash.finalize())
}

/// Verifies the hash chain entry by entry, from the first on.
#[derive(Debug, Default)]
pub struct AuditCheck {
    head: LogHeads,
}

/// What is wrong with the chain, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditFault {
    #[error("entry {expected} is missing: entry {found} follows {}", expected - 1)]
    Gap { expected: i64, found: i64 },
    #[error("entry {seq} was edited, or one before it was replaced: its hash does not fit")]
    Hash { seq: i64 },
    #[error("entries after {found} were removed: the log ends there, but had reached {expected}")]
    Truncated { expected: i64, found: i64 },
    #[error("the log's end is not the one recorded: entry {seq} was replaced")]
    End { seq: i64 },
}

impl AuditCheck {
    /// Begins with the entry after this one.
    pub fn after(position: &AuditPosition) -> AuditCheck {
        AuditCheck { head: LogHeads::starting_after(position) }
    }

    pub fn next(&mut self, entry: &AuditEntry) -> Result<(), AuditFault> {
        let expected = self.head.audit_seq + 1;
        if entry.seq != expected {
            return Err(AuditFault::Gap { expected, found: entry.seq });
        }
        let ours = self.head.append_audit(entry.entry.clone(), entry.at);
        if ours.hash != entry.hash {
            return Err(AuditFault::Hash { seq: entry.seq });
        }
        Ok(())
    }

    /// Compares the last verified entry with the recorded head.
    pub fn end(&self, recorded: &LogHeads) -> Result<(), AuditFault> {
        let (found, expected) = (self.head.audit_seq, recorded.audit_seq);
        if found < expected {
            return Err(AuditFault::Truncated { expected, found });
        }
        if found > expected || self.head.audit_hash != recorded.audit_hash {
            return Err(AuditFault::End { seq: found });
        }
        Ok(())
    }

    /// The number and the hash of the last verified entry.
    pub fn head(&self) -> &LogHeads {
        &self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(n: usize) -> (LogHeads, Vec<AuditEntry>) {
        let mut head = LogHeads::default();
        let entries = (0..n)
            .map(|i| {
                let draft = AuditDraft { actor: format!("a{i}"), ..AuditDraft::default() };
                head.append_audit(draft, Timestamp(i as i64))
            })
            .collect();
        (head, entries)
    }

    fn check(head: &LogHeads, entries: &[AuditEntry]) -> Result<(), AuditFault> {
        let mut check = AuditCheck::default();
        entries.iter().try_for_each(|entry| check.next(entry))?;
        check.end(head)
    }

    #[test]
    fn every_edit_removal_and_reordering_is_found_and_named() {
        let (head, good) = chain(9);
        assert_eq!(check(&head, &good), Ok(()));
        for i in 0..good.len() {
            let seq = good[i].seq;
            let mut edited = good.clone();
            edited[i].entry.outcome = "denied".into();
            assert_eq!(check(&head, &edited), Err(AuditFault::Hash { seq }));
            let mut removed = good.clone();
            removed.remove(i);
            let fault = check(&head, &removed).unwrap_err();
            if i + 1 < good.len() {
                assert_eq!(fault, AuditFault::Gap { expected: seq, found: seq + 1 });
                let mut swapped = good.clone();
                swapped.swap(i, i + 1);
                assert_eq!(
                    check(&head, &swapped),
                    Err(AuditFault::Gap { expected: seq, found: seq + 1 })
                );
                let mut renumbered = swapped.clone();
                (renumbered[i].seq, renumbered[i + 1].seq) = (seq, seq + 1);
                assert_eq!(check(&head, &renumbered), Err(AuditFault::Hash { seq }));
            } else {
                assert_eq!(fault, AuditFault::Truncated { expected: 9, found: 8 });
            }
        }
    }

    #[test]
    fn a_field_cannot_be_moved_into_its_neighbour() {
        let at = Timestamp(0);
        let a = AuditDraft { actor: "ab".into(), action: "c".into(), ..AuditDraft::default() };
        let b = AuditDraft { actor: "a".into(), action: "bc".into(), ..AuditDraft::default() };
        assert_ne!(chain_hash("", 1, at, &a), chain_hash("", 1, at, &b));
    }
}
