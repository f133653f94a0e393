//! Replays the logs of a store into an empty one. An event and its effects say all that its change
//! wrote, so the tables must become equal, but for queue, leases and cursors.

use kernel::blob::{BlobWrite, StoredBlob};
use kernel::change::{Change, EventDraft, Work, Write};
use kernel::log::{AuditFilter, BlobEffect, Effects, Event, EventFilter};
use kernel::store::{Store, commit};
use kernel::{Object, Result};

const PAGE: usize = 500;

/// Applies all events and all audit entries of `from` to `to`, which must be empty.
pub async fn replay(from: &dyn Store, to: &dyn Store) -> Result<()> {
    let mut after = 0;
    loop {
        let events = from.events(after, &EventFilter::default(), PAGE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for event in events {
            let at = event.at;
            commit(to, change(from, to, event).await?, at).await?;
        }
    }
    // What was archived is in no store.
    let after = from.head().await?.archived.seq;
    let mut filter = AuditFilter { after, ..AuditFilter::default() };
    loop {
        let entries = from.audit(&filter, PAGE).await?;
        let Some(last) = entries.last() else { return Ok(()) };
        filter.after = last.seq;
        for entry in entries {
            let change = Change { audit: Some(entry.entry), ..Change::default() };
            commit(to, change, entry.at).await?;
        }
    }
}

/// The change that an event is of.
async fn change(from: &dyn Store, to: &dyn Store, event: Event) -> Result<Change> {
    let Event { kind, subject, org, data, cause, effects, .. } = event;
    let effects = effects.unwrap_or_default();
    let Effects { depends_on, takes, releases, command, blobs, .. } = effects;
    let Effects { paused, resumed, audit_archived, settles, .. } = effects;
    let written = data.parse::<Object>().ok().filter(|object| object.key == subject);
    let (mut write, mut own_cause) = (None, Some(cause.clone()));
    if let Some(mut object) = written {
        let there = to.object(&subject).await?;
        // Progress carries the object as it is.
        let new = there.as_ref().is_none_or(|there| there.revision < object.revision);
        if object.cause == cause {
            own_cause = None;
        }
        object.revision -= i64::from(there.is_some());
        let event = kind.strip_prefix(&format!("mainstay.{}.", subject.kind()));
        let event = event.unwrap_or(&kind).to_owned();
        let written = match (&there, &own_cause) {
            (None, _) => Write::create(object, event),
            (Some(_), None) => Write::update(object, event),
            (Some(_), Some(_)) => Write::transition(object, event),
        };
        write = new.then_some(written);
    }
    let mut writes = Vec::new();
    for blob in blobs {
        writes.push(blob_write(from, blob).await?);
    }
    let work = match (paused, resumed) {
        (Some(reason), _) => Some(Work::Pause { key: subject.clone(), org: org.clone(), reason }),
        // What was resumed was paused before, and has a row.
        (None, true) => Some(Work::Resume { key: subject.clone() }),
        (None, false) => None,
    };
    Ok(Change {
        command,
        write,
        depends_on,
        takes,
        releases,
        blobs: writes,
        work,
        event: Some(EventDraft { kind, subject, org, data: Some(data) }),
        audit_archived,
        settles,
        cause: own_cause,
        ..Change::default()
    })
}

/// Blobs are copied as they are now; what an older version held is not in the log.
async fn blob_write(from: &dyn Store, effect: BlobEffect) -> Result<BlobWrite> {
    let BlobEffect { key, name, digest, parts } = effect;
    let (Some(digest), Some(name)) = (digest, name.clone()) else {
        return Ok(BlobWrite::Remove { key, name });
    };
    let now = from.blob(&key, &name).await?.filter(|(info, _)| info.digest == digest);
    let data = match now {
        Some((info, data)) => {
            StoredBlob { digest, size: info.size, sealed: info.sealed, parts, data }
        }
        None => StoredBlob { digest, size: 0, sealed: false, parts, data: Default::default() },
    };
    Ok(BlobWrite::Put { key, name, expected: None, data })
}
