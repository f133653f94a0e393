//! The events and audit entries of the admitted changes, in the order of their numbers.

use super::written;
use crate::change::Verdict;
use crate::log::{AuditEntry, Effects, Event, LogHeads};
use crate::store::NewestByKind;
use crate::{Change, Json, Timestamp};

/// The events and audit entries of the admitted changes, with their sequence numbers.
#[derive(Debug, Default)]
pub struct NumberedLogs {
    pub events: Vec<Event>,
    pub audit: Vec<AuditEntry>,
}

impl NumberedLogs {
    /// The number of the newest event of each kind that has one.
    pub fn newest_by_kind(&self) -> NewestByKind {
        let mut newest = NewestByKind::new();
        for event in &self.events {
            match newest.get_mut(event.subject.kind()) {
                Some(seq) => *seq = event.seq,
                None => drop(newest.insert(event.subject.kind().into(), event.seq)),
            }
        }
        newest
    }

    /// Assigns sequence numbers to the admitted changes and, for the audit log, hashes.
    pub fn add(
        &mut self,
        changes: &[Change],
        verdicts: &mut [Verdict],
        head: &mut LogHeads,
        now: Timestamp,
    ) {
        for (change, verdict) in changes.iter().zip(verdicts) {
            let Ok(accepted) = verdict else { continue };
            if let Some(mut draft) = change.event() {
                let new = change.write.as_ref().map(|write| written(change, write));
                let data = draft.data.take().or_else(|| new.as_ref().map(Json::encode));
                let mut event = head.append_event(draft, data.unwrap_or_default(), now);
                event.cause = match (&change.cause, new) {
                    (Some(cause), _) => cause.clone(),
                    (None, new) => new.map(|object| object.cause).unwrap_or_default(),
                };
                event.effects = Effects::of(change);
                accepted.event = Some(event.seq);
                self.events.push(event);
            }
            if let Some(position) = &change.audit_archived {
                head.archive(position);
            }
            if let Some(draft) = &change.audit {
                let entry = head.append_audit(draft.clone(), now);
                accepted.audit = Some(entry.seq);
                self.audit.push(entry);
            }
        }
    }
}
