//! Deletes old rows.

use rusqlite::params;

use super::save;
use super::writer::Session;
use crate::store::Purge;
use crate::store::sql::Row as _;
use crate::{Key, Timestamp};

pub fn purge(session: &mut Session<'_>, purge: &Purge, limit: usize) -> rusqlite::Result<usize> {
    let rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let read = "coalesce((SELECT min(seq) FROM cursors), (SELECT event_seq FROM meta))";
    let all = "(SELECT event_seq FROM meta)";
    let read = events(session, purge.events_before, read, rows)?;
    let unread = events(session, purge.unread_events_before, all, rows)?;
    let commands = session
        .connection
        .prepare_cached(
            "DELETE FROM commands WHERE id IN (SELECT id FROM commands WHERE at < ?1 LIMIT ?2)",
        )?
        .execute(params![purge.commands_before.millis(), rows])?;
    let objects = objects(session, purge.deleted_before, rows)?;
    Ok(read + unread + commands + objects + archived(session, rows)?)
}

/// Deletes audit entries that an archive has.
fn archived(session: &Session<'_>, limit: i64) -> rusqlite::Result<usize> {
    const OLD: &str = "seq <= (SELECT archived_seq FROM meta)
         AND seq < (SELECT min(seq) FROM audit) + ?1";
    let index = format!(
        "DELETE FROM audit_target WHERE (target, seq) IN (SELECT target, seq FROM audit WHERE {OLD})"
    );
    save::execute(session.connection, &index, [limit])?;
    let entries = format!("DELETE FROM audit WHERE {OLD}");
    session.connection.prepare_cached(&entries)?.execute([limit])
}

/// Deletes the events before `before`, of the first `limit` up to the number `last`. Keeps the newest
/// event, so that the log never looks empty to a reader that is up to date. Events before an old
/// one are old too, whatever the clock said: there are no gaps.
fn events(
    session: &Session<'_>,
    before: Timestamp,
    last: &str,
    limit: i64,
) -> rusqlite::Result<usize> {
    let old = format!(
        "seq <= (SELECT max(seq) FROM (SELECT seq, at FROM events ORDER BY seq LIMIT ?2) WHERE at < ?1)
         AND seq < (SELECT event_seq FROM meta) AND seq <= {last}"
    );
    let params = params![before.millis(), limit];
    for (index, column) in [("events_subject", "subject"), ("events_kind", "kind")] {
        let index = format!(
            "DELETE FROM {index} WHERE ({column}, seq) IN (SELECT {column}, seq FROM events WHERE {old})"
        );
        save::execute(session.connection, &index, params)?;
    }
    let events = format!("DELETE FROM events WHERE {old}");
    session.connection.prepare_cached(&events)?.execute(params)
}

/// Deletes objects that were deleted before `before` and on which nothing depends.
fn objects(session: &mut Session<'_>, before: Timestamp, limit: i64) -> rusqlite::Result<usize> {
    let connection = session.connection;
    let mut statement = connection.prepare_cached(
        "SELECT num, key FROM objects WHERE deleted_at < ?1
             AND NOT EXISTS (SELECT 1 FROM edges WHERE dependency = key)
             AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.key = objects.key)
         LIMIT ?2",
    )?;
    let found = statement.query_map(params![before.millis(), limit], |row| {
        Ok((row.get::<_, i64>(0)?, row.key(1)?))
    })?;
    let found: Vec<(i64, Key)> = found.collect::<rusqlite::Result<_>>()?;
    for (num, key) in &found {
        save::execute(connection, "DELETE FROM objects_text WHERE rowid = ?1", [num])?;
        for sql in [
            "DELETE FROM objects WHERE key = ?1",
            "DELETE FROM edges WHERE dependent = ?1",
            "DELETE FROM blobs WHERE key = ?1",
        ] {
            save::execute(connection, sql, [key.as_str()])?;
        }
    }
    let count = found.len();
    session.written.extend(found.into_iter().map(|(_, key)| key));
    Ok(count)
}
