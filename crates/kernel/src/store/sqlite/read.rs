//! Reads: objects, lists and searches, both logs, the queue.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use super::load::{QUEUE_COLUMNS, json_at, key_at, queue_at};
use super::log_index;
use super::save::{tag, token};
use crate::change::AuditDraft;
use crate::log::{AuditEntry, AuditFilter, Event, EventFilter};
use crate::query::{ObjectQuery, QueryPage};
use crate::queue::{QueueRow, State};
use crate::store::{WorkCount, WorkFilter};
use crate::{Key, Object, Timestamp};

const COLUMNS: &str = "objects.num, objects.key, org, owner, name, description, phase, labels, spec, status, generation, observed, revision, created_at, updated_at, deleted_at";

fn object_at(row: &Row) -> rusqlite::Result<(i64, Object)> {
    let labels = row.get_ref(7)?.as_str()?;
    let object = Object {
        key: key_at(row, 1)?,
        org: row.get(2)?,
        owner: row.get(3)?,
        name: row.get(4)?,
        description: row.get(5)?,
        phase: row.get(6)?,
        labels: if labels == "{}" {
            Default::default()
        } else {
            serde_json::from_str(labels).unwrap_or_default()
        },
        spec: json_at(row, 8)?,
        status: json_at(row, 9)?,
        generation: row.get(10)?,
        observed: row.get(11)?,
        revision: row.get(12)?,
        created_at: Timestamp(row.get(13)?),
        updated_at: Timestamp(row.get(14)?),
        deleted_at: row.get::<_, Option<i64>>(15)?.map(Timestamp),
    };
    Ok((row.get(0)?, object))
}

pub fn objects(connection: &Connection, keys: &[Key]) -> rusqlite::Result<Vec<Object>> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM objects WHERE key = ?1"))?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        found.extend(
            statement.query_row([key.as_str()], object_at).optional()?.map(|(_, object)| object),
        );
    }
    Ok(found)
}

/// A statement built from its conditions.
#[derive(Default)]
struct Where {
    sql: String,
    values: Vec<Value>,
}

impl Where {
    fn and(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        let word = if self.sql.is_empty() { "WHERE" } else { "AND" };
        let number = self.values.len().to_string();
        self.sql.push_str(&format!(" {word} {}", condition.replace('?', &format!("?{number}"))));
    }

    fn maybe(&mut self, condition: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.and(condition, value);
        }
    }

    fn plain(&mut self, condition: &str) {
        let word = if self.sql.is_empty() { "WHERE" } else { "AND" };
        self.sql.push_str(&format!(" {word} {condition}"));
    }
}

pub fn find(connection: &Connection, find: &ObjectQuery) -> rusqlite::Result<QueryPage> {
    let mut from = String::from("objects");
    let mut filter = Where::default();
    let text = text_query(find);
    let text_or_edges = text.is_some() || find.depends_on.is_some();
    let place = if text.is_some() { "objects_text.rowid" } else { "objects.num" };
    if let Some(text) = text {
        from = "objects_text CROSS JOIN objects ON objects.num = objects_text.rowid".into();
        filter.and("objects_text MATCH ?", text);
    }
    if let Some(key) = &find.depends_on {
        from.push_str(" JOIN edges ON edges.dependent = objects.key");
        filter.and("edges.dependency = ?", key.as_str().to_owned());
    }
    // A unary plus keeps SQLite from using the column's index.
    let rare = if text_or_edges { None } else { rare_column(connection, find)? };
    let plus = |column: &str| if rare.is_some_and(|rare| rare != column) { "+" } else { "" };
    filter.maybe(&format!("{}org = ?", plus("org")), find.org.clone());
    filter.maybe(&format!("{}kind = ?", plus("kind")), find.kind.clone());
    for (column, value) in columns(find) {
        let plus = if rare == Some(column) { "" } else { "+" };
        filter.maybe(&format!("{plus}{column} = ?"), value.cloned());
    }
    filter.maybe(&format!("{place} < ?"), find.after);
    if !find.deleted {
        filter.plain("deleted_at IS NULL");
    }
    let sql = format!("SELECT {COLUMNS} FROM {from}{} ORDER BY {place} DESC", filter.sql);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(filter.values))?;
    let mut page = QueryPage { objects: Vec::new(), next: None };
    let mut last = 0;
    while let Some(row) = rows.next()? {
        let (num, object) = object_at(row)?;
        if !find.labels.iter().all(|(key, value)| object.labels.get(key) == Some(value)) {
            continue;
        }
        if page.objects.len() == find.limit {
            page.next = Some(last);
            break;
        }
        page.objects.push(object);
        last = num;
    }
    Ok(page)
}

/// Columns whose selectivity varies: one phase has three objects, another all of them.
fn columns(find: &ObjectQuery) -> [(&'static str, Option<&String>); 3] {
    [("name", find.name.as_ref()), ("phase", find.phase.as_ref()), ("owner", find.owner.as_ref())]
}

/// The first column with a selective value, whose index is then used. A value that many objects
/// share is found soon by scanning from the newest, where an index would not help.
fn rare_column(
    connection: &Connection,
    find: &ObjectQuery,
) -> rusqlite::Result<Option<&'static str>> {
    const FEW: i64 = 1000;
    for (column, value) in columns(find) {
        let Some(value) = value else { continue };
        let sql =
            format!("SELECT count(*) FROM (SELECT 1 FROM objects WHERE {column} = ?1 LIMIT {FEW})");
        let found: i64 = connection.prepare_cached(&sql)?.query_row([value], |row| row.get(0))?;
        if found < FEW {
            return Ok(Some(column));
        }
    }
    Ok(None)
}

/// Search words match by prefix; labels match exactly.
fn text_query(find: &ObjectQuery) -> Option<String> {
    let words = find.words.iter().map(|word| format!("words:\"{}\"*", token(word)));
    let tags = find.labels.iter().map(|(key, value)| format!("tags:\"{}\"", tag(key, value)));
    let all: Vec<String> = words.chain(tags).collect();
    (!all.is_empty()).then(|| all.join(" AND "))
}

pub fn dependencies(connection: &Connection, key: &Key) -> rusqlite::Result<Vec<Key>> {
    keys(connection, "SELECT dependency FROM edges WHERE dependent = ?1 ORDER BY 1", key)
}

pub fn dependents(connection: &Connection, key: &Key) -> rusqlite::Result<Vec<Key>> {
    keys(connection, "SELECT dependent FROM edges WHERE dependency = ?1 ORDER BY 1", key)
}

fn keys(connection: &Connection, sql: &str, key: &Key) -> rusqlite::Result<Vec<Key>> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([key.as_str()], |row| key_at(row, 0))?.collect()
}

pub fn events(
    connection: &Connection,
    after: i64,
    filter: &EventFilter,
    limit: usize,
) -> rusqlite::Result<Vec<Event>> {
    let mut conditions = Where::default();
    conditions.and("seq > ?", after);
    conditions.maybe("subject = ?", filter.subject.as_ref().map(|key| key.as_str().to_owned()));
    let from = if filter.subject.is_some() { log_index::EVENTS_OF } else { "events" };
    conditions.maybe("org = ?", filter.org.clone());
    conditions.maybe("substr(subject, 1, instr(subject, '/') - 1) = ?", filter.kind.clone());
    let sql = format!(
        "SELECT seq, type, subject, org, at, data FROM {from}{} ORDER BY seq LIMIT {limit}",
        conditions.sql
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(conditions.values), |row| {
        Ok(Event {
            seq: row.get(0)?,
            kind: row.get(1)?,
            subject: key_at(row, 2)?,
            org: row.get(3)?,
            at: Timestamp(row.get(4)?),
            data: json_at(row, 5)?,
        })
    })?;
    rows.collect()
}

pub fn audit(
    connection: &Connection,
    filter: &AuditFilter,
    limit: usize,
) -> rusqlite::Result<Vec<AuditEntry>> {
    let mut conditions = Where::default();
    conditions.and("seq > ?", filter.after);
    conditions.maybe("target = ?", filter.target.clone());
    conditions.maybe("seq < ?", filter.before);
    conditions.maybe("actor = ?", filter.actor.clone());
    let from = if filter.target.is_some() { log_index::AUDIT_OF } else { "audit" };
    conditions.maybe("org = ?", filter.org.clone());
    let order = if filter.before.is_some() { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT seq, at, actor, action, target, org, origin, outcome, request_id, before, after, hash
         FROM {from}{} ORDER BY seq {order} LIMIT {limit}",
        conditions.sql
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(conditions.values), |row| {
        let entry = AuditDraft {
            actor: row.get(2)?,
            action: row.get(3)?,
            target: row.get(4)?,
            org: row.get(5)?,
            origin: row.get(6)?,
            outcome: row.get(7)?,
            request_id: row.get(8)?,
            before: json_at(row, 9)?,
            after: json_at(row, 10)?,
        };
        Ok(AuditEntry { seq: row.get(0)?, at: Timestamp(row.get(1)?), entry, hash: row.get(11)? })
    })?;
    rows.collect()
}

pub fn work(
    connection: &Connection,
    filter: &WorkFilter,
    limit: usize,
) -> rusqlite::Result<Vec<QueueRow>> {
    let mut conditions = Where::default();
    conditions.maybe("key = ?", filter.key.as_ref().map(|key| key.as_str().to_owned()));
    conditions.maybe("org = ?", filter.org.clone());
    conditions.maybe("state = ?", filter.state.map(State::number));
    conditions.maybe("paused = ?", filter.paused);
    if filter.failing {
        conditions.plain("attempt > 0");
    }
    let sql =
        format!("SELECT {QUEUE_COLUMNS} FROM queue{} ORDER BY due LIMIT {limit}", conditions.sql);
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map(params_from_iter(conditions.values), queue_at)?.collect()
}

pub fn work_counts(connection: &Connection) -> rusqlite::Result<Vec<WorkCount>> {
    let mut statement = connection.prepare_cached(
        "SELECT substr(key, 1, instr(key, '/') - 1), state, paused, attempt > 0, count(*)
         FROM queue GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(WorkCount {
            kind: row.get(0)?,
            state: State::from_number(row.get(1)?),
            paused: row.get(2)?,
            failing: row.get(3)?,
            rows: row.get(4)?,
        })
    })?;
    rows.collect()
}
