//! Reads: objects, lists and searches.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use super::save::{tag, token};
use crate::change::Edge;
use crate::log::Event;
use crate::query::{ObjectQuery, QueryPage};
use crate::store::EVENTS_BYTES_MAX;
use crate::store::sql::{self, Select, Where};
use crate::{Key, Object};

const COLUMNS: &str = "objects.num, objects.key, org, owner, name, description, phase, labels, spec, status, generation, observed, revision, created_at, updated_at, deleted_at, cause";

impl sql::Value for Value {
    const PLACEHOLDER: char = '?';

    fn kind_of(column: &str) -> String {
        format!("substr({column}, 1, instr({column}, '/') - 1)")
    }
}

/// Runs a prepared statement and maps its rows.
pub fn select<T>(
    connection: &Connection,
    select: Select<Value>,
    map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = connection.prepare_cached(&select.sql)?;
    statement.query_map(params_from_iter(select.values), map)?.collect()
}

/// Reads events until a page is full.
pub fn events(connection: &Connection, select: Select<Value>) -> rusqlite::Result<Vec<Event>> {
    let mut statement = connection.prepare_cached(&select.sql)?;
    let mut rows = statement.query(params_from_iter(select.values))?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    while bytes < EVENTS_BYTES_MAX
        && let Some(row) = rows.next()?
    {
        let event = sql::event(row)?;
        bytes += event.data.text().len();
        events.push(event);
    }
    Ok(events)
}

pub fn objects(connection: &Connection, keys: &[Key]) -> rusqlite::Result<Vec<Object>> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM objects WHERE key = ?1"))?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let object = statement.query_row([key.as_str()], |row| sql::object(row)).optional()?;
        found.extend(object.map(|(_, object)| object));
    }
    Ok(found)
}

pub fn find(connection: &Connection, find: &ObjectQuery) -> rusqlite::Result<QueryPage> {
    let mut from = String::from("objects");
    let mut filter = Where::<Value>::new();
    let text = text_query(find);
    let walks = find.depends_on.is_some() || find.used_by.is_some();
    let searches = text.is_some();
    let place = if text.is_some() { "objects_text.rowid" } else { "objects.num" };
    if let Some(text) = text {
        from = "objects_text CROSS JOIN objects ON objects.num = objects_text.rowid".into();
        filter.and("objects_text MATCH ?", text);
    }
    sql::related(&mut filter, find);
    // A unary plus keeps SQLite from using the column's index.
    let rare = match (walks, searches) {
        // An organisation has many more objects than a walk finds.
        (true, _) => Some("key"),
        (false, true) => None,
        (false, false) => rare_column(connection, find)?,
    };
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
        let (num, object) = sql::object(row)?;
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

pub fn edges(connection: &Connection, sql: &str, key: &Key) -> rusqlite::Result<Vec<Edge>> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([key.as_str()], |row| sql::edge(row))?.collect()
}
