//! Finds the events of one object, and the audit entries of one target, in logs that only grow.
//!
//! An ordinary index would be written at a random place for every entry, which halves what the
//! store can commit. Instead the newest entries have none and are scanned; when there are enough
//! of them they are sorted and merged into `events_subject` and `audit_target` in one go, so that
//! each page of those is touched once for many entries.

use rusqlite::{Connection, TransactionBehavior, params};

use crate::log::LogHeads;

/// Entries that have no index yet, at the most: a scan of so many takes a few milliseconds, and
/// merging them delays a commit once in a long while by some tens.
const TAIL_MAX: i64 = 16_384;

/// How far the indexes reach.
#[derive(Debug, Clone, Copy)]
pub struct IndexedUpTo {
    events: i64,
    audit: i64,
}

pub fn indexed(connection: &Connection) -> rusqlite::Result<IndexedUpTo> {
    connection.query_row("SELECT events_indexed, audit_indexed FROM meta", [], |row| {
        Ok(IndexedUpTo { events: row.get(0)?, audit: row.get(1)? })
    })
}

/// Merges what has gathered, if it is enough.
pub fn merge_tail(
    connection: &mut Connection,
    head: &LogHeads,
    indexed: &mut IndexedUpTo,
) -> rusqlite::Result<()> {
    if head.event_seq - indexed.events < TAIL_MAX && head.audit_seq - indexed.audit < TAIL_MAX {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "INSERT OR IGNORE INTO events_subject
         SELECT subject, seq FROM events WHERE seq > ?1 AND seq <= ?2 ORDER BY subject, seq",
        params![indexed.events, head.event_seq],
    )?;
    transaction.execute(
        "INSERT OR IGNORE INTO audit_target
         SELECT target, seq FROM audit WHERE seq > ?1 AND seq <= ?2 ORDER BY target, seq",
        params![indexed.audit, head.audit_seq],
    )?;
    transaction.execute(
        "UPDATE meta SET events_indexed = ?1, audit_indexed = ?2",
        params![head.event_seq, head.audit_seq],
    )?;
    transaction.commit()?;
    *indexed = IndexedUpTo { events: head.event_seq, audit: head.audit_seq };
    Ok(())
}

/// The events of a subject, to be read from instead of the whole table; `?1` is the place to begin
/// after, `?2` the subject.
pub const EVENTS_OF: &str = "(SELECT * FROM events WHERE seq IN
         (SELECT seq FROM events_subject WHERE subject = ?2 AND seq > ?1)
     UNION ALL
     SELECT * FROM events WHERE seq > max(?1, (SELECT events_indexed FROM meta)) AND subject = ?2)";

/// The same for the audit entries of a target.
pub const AUDIT_OF: &str = "(SELECT * FROM audit WHERE seq IN
         (SELECT seq FROM audit_target WHERE target = ?2 AND seq > ?1)
     UNION ALL
     SELECT * FROM audit WHERE seq > max(?1, (SELECT audit_indexed FROM meta)) AND target = ?2)";
