//! Loads the rows that a batch touches, for admission.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::admission::{BatchState, Counter, Lease, RowSet, StoredRevision, Tracked};
use crate::change::{CommandRecord, CommandReply, Lane};
use crate::log::LogHeads;
use crate::queue::{QueueRow, State};
use crate::{Json, Key, Timestamp};

pub fn rows(connection: &Connection, touched: &RowSet) -> rusqlite::Result<BatchState> {
    let mut rows = BatchState::default();
    for key in &touched.objects {
        let stored = connection
            .prepare_cached("SELECT revision FROM objects WHERE key = ?1")?
            .query_row([key.as_str()], |row| Ok(StoredRevision { revision: row.get(0)? }))
            .optional()?;
        if let Some(stored) = stored {
            rows.objects.insert(key.clone(), Tracked::loaded(stored));
        }
    }
    const DEPENDENTS: &str = "SELECT dependent, coalesce(org, '') FROM edges LEFT JOIN objects ON key = dependent WHERE dependency = ?1";
    const DEPENDENCIES: &str = "SELECT dependency, coalesce(org, '') FROM edges LEFT JOIN objects ON key = dependency WHERE dependent = ?1";
    for (keys, sql, into) in [
        (&touched.dependents_of, DEPENDENTS, &mut rows.dependents),
        (&touched.dependencies_of, DEPENDENCIES, &mut rows.dependencies),
    ] {
        for key in keys {
            let mut statement = connection.prepare_cached(sql)?;
            let found =
                statement.query_map([key.as_str()], |row| Ok((key_at(row, 0)?, row.get(1)?)))?;
            into.insert(key.clone(), found.collect::<rusqlite::Result<_>>()?);
        }
    }
    let neighbours = rows.dependents.values().chain(rows.dependencies.values());
    let neighbours: Vec<Key> = neighbours.flat_map(|map| map.keys().cloned()).collect();
    for key in touched.queue.iter().chain(&neighbours) {
        if let Some(row) = queue_row(connection, key)? {
            rows.queue.insert(key.clone(), Tracked::loaded(row));
        }
    }
    for name in &touched.counters {
        if let Some(found) = counter(connection, name)? {
            rows.counters.insert(name.clone(), Tracked::loaded(found));
        }
    }
    for (name, holder) in &touched.holds {
        let amount = connection
            .prepare_cached("SELECT amount FROM allotments WHERE counter = ?1 AND holder = ?2")?
            .query_row(params![name, holder], |row| row.get(0))
            .optional()?;
        if let Some(amount) = amount {
            rows.holds.insert((name.clone(), holder.clone()), Tracked::loaded(amount));
        }
    }
    for name in &touched.leases {
        if let Some(lease) = lease(connection, name)? {
            rows.leases.insert(name.clone(), lease);
        }
    }
    for id in &touched.commands {
        if let Some(command) = command(connection, id)? {
            rows.commands.insert(id.clone(), Tracked::loaded(command));
        }
    }
    Ok(rows)
}

pub fn key_at(row: &Row, column: usize) -> rusqlite::Result<Key> {
    Ok(Key::stored(row.get_ref(column)?.as_str()?))
}

pub fn json_at(row: &Row, column: usize) -> rusqlite::Result<Json> {
    let damaged = |e| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(e))
    };
    Json::stored(row.get(column)?).map_err(damaged)
}

pub const QUEUE_COLUMNS: &str =
    "key, org, lane, state, paused, due, attempt, fence, worker, woken, reason";

pub fn queue_at(row: &Row) -> rusqlite::Result<QueueRow> {
    Ok(QueueRow {
        key: key_at(row, 0)?,
        org: row.get(1)?,
        lane: Lane::from_number(row.get(2)?),
        state: State::from_number(row.get(3)?),
        paused: row.get(4)?,
        due: Timestamp(row.get(5)?),
        attempt: row.get(6)?,
        fence: row.get(7)?,
        worker: row.get(8)?,
        woken: row.get::<_, Option<i64>>(9)?.map(Timestamp),
        reason: row.get(10)?,
    })
}

pub fn queue_row(connection: &Connection, key: &Key) -> rusqlite::Result<Option<QueueRow>> {
    connection
        .prepare_cached(&format!("SELECT {QUEUE_COLUMNS} FROM queue WHERE key = ?1"))?
        .query_row([key.as_str()], queue_at)
        .optional()
}

pub fn counter(connection: &Connection, name: &str) -> rusqlite::Result<Option<Counter>> {
    connection
        .prepare_cached("SELECT amount, cap FROM allotments WHERE counter = ?1 AND holder = ''")?
        .query_row([name], |row| Ok(Counter { used: row.get(0)?, limit: row.get(1)? }))
        .optional()
}

pub fn lease(connection: &Connection, name: &str) -> rusqlite::Result<Option<Lease>> {
    connection
        .prepare_cached("SELECT holder, fence, until FROM leases WHERE name = ?1")?
        .query_row([name], |row| {
            Ok(Lease { holder: row.get(0)?, fence: row.get(1)?, until: Timestamp(row.get(2)?) })
        })
        .optional()
}

pub fn command(connection: &Connection, id: &str) -> rusqlite::Result<Option<CommandRecord>> {
    connection
        .prepare_cached("SELECT id, digest, status, body FROM commands WHERE id = ?1")?
        .query_row([id], |row| {
            let answer = CommandReply { status: row.get(2)?, body: json_at(row, 3)? };
            Ok(CommandRecord { id: row.get(0)?, digest: row.get(1)?, answer })
        })
        .optional()
}

pub fn head(connection: &Connection) -> rusqlite::Result<LogHeads> {
    connection.prepare_cached("SELECT event_seq, audit_seq, audit_hash FROM meta")?.query_row(
        [],
        |row| {
            Ok(LogHeads { event_seq: row.get(0)?, audit_seq: row.get(1)?, audit_hash: row.get(2)? })
        },
    )
}
