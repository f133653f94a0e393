//! Indexes of the append-only logs: the events of one object or kind, the audit entries of one target.
//!
//! An ordinary index writes to a random page for every entry, which halves the store's throughput.
//! Instead the newest entries are not indexed but scanned; when there are enough, they are sorted
//! and merged into `events_subject`, `events_kind` and `audit_target` at once, so that each page is
//! written once for many entries.

use rusqlite::{Connection, TransactionBehavior, params};

use crate::log::LogHeads;

/// The most entries that are not indexed: scanning them takes a few milliseconds, and merging them
/// delays an occasional commit by tens of milliseconds.
const TAIL_MAX: i64 = 16_384;

/// The last indexed sequence numbers.
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

/// Merges the tail into the indexes, once it is long enough.
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
        "INSERT OR IGNORE INTO events_kind
         SELECT kind, seq FROM events WHERE seq > ?1 AND seq <= ?2 ORDER BY kind, seq",
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

/// A subquery for the events of a subject: `?1` is the sequence number to start after, `?2` the
/// subject.
pub const EVENTS_OF: &str = "(SELECT * FROM events WHERE seq IN
         (SELECT seq FROM events_subject WHERE subject = ?2 AND seq > ?1)
     UNION ALL
     SELECT * FROM events WHERE seq > max(?1, (SELECT events_indexed FROM meta)) AND subject = ?2)";

/// The same for the events of a kind.
pub const EVENTS_OF_KIND: &str = "(SELECT * FROM events WHERE seq IN
         (SELECT seq FROM events_kind WHERE kind = ?2 AND seq > ?1)
     UNION ALL
     SELECT * FROM events WHERE seq > max(?1, (SELECT events_indexed FROM meta)) AND kind = ?2)";

/// The newest event of each kind. Steps from kind to kind, rather than from event to event.
pub const NEWEST_BY_KIND: &str = "WITH RECURSIVE kinds (kind) AS (
         SELECT min(kind) FROM events_kind
         UNION ALL
         SELECT (SELECT min(kind) FROM events_kind WHERE kind > kinds.kind) FROM kinds
         WHERE kinds.kind IS NOT NULL)
     SELECT kind, (SELECT max(seq) FROM events_kind WHERE kind = kinds.kind)
     FROM kinds WHERE kind IS NOT NULL
     UNION ALL
     SELECT kind, max(seq) FROM events WHERE seq > (SELECT events_indexed FROM meta) GROUP BY kind";

/// The same for the audit entries of a target.
pub const AUDIT_OF: &str = "(SELECT * FROM audit WHERE seq IN
         (SELECT seq FROM audit_target WHERE target = ?2 AND seq > ?1)
     UNION ALL
     SELECT * FROM audit WHERE seq > max(?1, (SELECT audit_indexed FROM meta)) AND target = ?2)";
