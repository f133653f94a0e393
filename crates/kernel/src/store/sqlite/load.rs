//! Loads the rows that a batch touches, for admission.

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::admission::{BatchState, Counter, DEPENDENTS_AT_ONCE, Lease, RowSet, Tracked};
use crate::change::{CommandRecord, CursorMove};
use crate::log::LogHeads;
use crate::store::sql::{self, QUEUE_COLUMNS, Row as _};
use crate::{Json, Key};

impl sql::Row for Row<'_> {
    type Error = rusqlite::Error;

    fn value<T: rusqlite::types::FromSql>(&self, column: usize) -> rusqlite::Result<T> {
        self.get(column)
    }

    fn text(&self, column: usize) -> rusqlite::Result<&str> {
        Ok(self.get_ref(column)?.as_str()?)
    }

    fn json(&self, column: usize) -> rusqlite::Result<Json> {
        let text = rusqlite::types::Type::Text;
        let damaged = |e| rusqlite::Error::FromSqlConversionFailure(column, text, Box::new(e));
        Json::stored(self.get(column)?).map_err(damaged)
    }
}

pub fn rows(connection: &Connection, touched: &RowSet) -> rusqlite::Result<BatchState> {
    let mut rows = BatchState::default();
    for key in &touched.objects {
        let sql = "SELECT revision FROM objects WHERE key = ?1";
        if let Some(revision) = one(connection, sql, [key.as_str()], |row| row.get(0))? {
            rows.objects.insert(key.clone(), Tracked::loaded(revision));
        }
    }
    const DEPENDENTS: &str = "SELECT dependent, coalesce(org, '') FROM edges LEFT JOIN objects ON key = dependent WHERE dependency = ?1 ORDER BY 1 LIMIT ?2";
    const DEPENDENCIES: &str = "SELECT dependency, coalesce(org, '') FROM edges LEFT JOIN objects ON key = dependency WHERE dependent = ?1 LIMIT ?2";
    // One more than are woken at once shows that there are more.
    let dependents_max = DEPENDENTS_AT_ONCE as i64 + 1;
    for (keys, sql, limit, into) in [
        (&touched.dependents_of, DEPENDENTS, dependents_max, &mut rows.dependents),
        (&touched.dependencies_of, DEPENDENCIES, i64::MAX, &mut rows.dependencies),
    ] {
        for key in keys {
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement
                .query_map(params![key.as_str(), limit], |row| Ok((row.key(0)?, row.get(1)?)))?;
            into.insert(key.clone(), found.collect::<rusqlite::Result<_>>()?);
        }
    }
    rows.page_dependents(DEPENDENTS_AT_ONCE);
    let neighbours = rows.dependents.values().chain(rows.dependencies.values());
    let neighbours: Vec<Key> = neighbours.flat_map(|map| map.keys().cloned()).collect();
    let sql = format!("SELECT {QUEUE_COLUMNS} FROM queue WHERE key = ?1");
    for key in touched.queue.iter().chain(&neighbours) {
        if let Some(row) = one(connection, &sql, [key.as_str()], |row| sql::queue_row(row))? {
            rows.queue.insert(key.clone(), Tracked::loaded(row));
        }
    }
    for name in &touched.counters {
        if let Some(found) = counter(connection, name)? {
            rows.counters.insert(name.clone(), Tracked::loaded(found));
        }
    }
    for (name, holder) in &touched.holds {
        let sql = "SELECT amount FROM allotments WHERE counter = ?1 AND holder = ?2";
        if let Some(amount) = one(connection, sql, params![name, holder], |row| row.get(0))? {
            rows.holds.insert((name.clone(), holder.clone()), Tracked::loaded(amount));
        }
    }
    for name in &touched.leases {
        if let Some(lease) = lease(connection, name)? {
            rows.leases.insert(name.clone(), lease);
        }
    }
    for (key, name) in &touched.blobs {
        let sql = "SELECT version, parts FROM blobs WHERE key = ?1 AND name = ?2";
        let stored = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        if let Some(stored) = one(connection, sql, [key.as_str(), name], stored)? {
            rows.blobs.insert((key.clone(), name.clone()), Tracked::loaded(stored));
        }
    }
    for name in &touched.cursors {
        if let Some(found) = cursor(connection, name)? {
            rows.cursors.insert(name.clone(), Tracked::loaded(found));
        }
    }
    for id in &touched.commands {
        if let Some(command) = command(connection, id)? {
            rows.commands.insert(id.clone(), Tracked::loaded(command));
        }
    }
    Ok(rows)
}

/// Runs a prepared statement that returns at most one row.
pub fn one<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(params, map).optional()
}

pub fn counter(connection: &Connection, name: &str) -> rusqlite::Result<Option<Counter>> {
    let counter = |row: &Row<'_>| Ok(Counter { used: row.get(0)?, limit: row.get(1)? });
    one(connection, sql::COUNTER, [name], counter)
}

pub fn lease(connection: &Connection, name: &str) -> rusqlite::Result<Option<Lease>> {
    one(connection, sql::LEASE, [name], |row| sql::lease(row))
}

pub fn command(connection: &Connection, id: &str) -> rusqlite::Result<Option<CommandRecord>> {
    one(connection, sql::COMMAND, [id], |row| sql::command(row))
}

pub fn cursor(connection: &Connection, name: &str) -> rusqlite::Result<Option<CursorMove>> {
    one(connection, sql::CURSOR, [name], |row| sql::cursor(row))
}

pub fn head(connection: &Connection) -> rusqlite::Result<LogHeads> {
    connection.prepare_cached(sql::LOG_HEADS)?.query_row([], |row| sql::log_heads(row))
}
