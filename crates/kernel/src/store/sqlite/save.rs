//! Writes the result of a batch: the changed rows, the events, the audit entries.

use std::collections::BTreeMap;

use rusqlite::{Connection, Params, ToSql, params};

use crate::admission::{BatchState, NumberedLogs};
use crate::blob::StoredBlob;
use crate::change::{Cause, CursorMove, WriteKind};
use crate::log::LogHeads;
use crate::queue::QueueRow;
use crate::{Key, Object, Timestamp};

pub fn rows(connection: &Connection, rows: &BatchState, now: Timestamp) -> rusqlite::Result<()> {
    for (object, kind) in rows.writes.values() {
        match kind {
            WriteKind::Create => create(connection, object)?,
            WriteKind::Update => update(connection, object)?,
            WriteKind::Transition => transition(connection, object)?,
        }
    }
    for (key, depends_on) in &rows.edges {
        edges(connection, key, depends_on)?;
    }
    for (key, tracked) in rows.queue.iter().filter(|(_, tracked)| tracked.changed()) {
        match &tracked.after {
            Some(row) if tracked.before.is_some() => update_queue(connection, row)?,
            Some(row) => insert_queue(connection, row)?,
            None => execute(connection, "DELETE FROM queue WHERE key = ?1", [key.as_str()])?,
        }
    }
    for (name, tracked) in rows.counters.iter().filter(|(_, tracked)| tracked.changed()) {
        let amount = tracked.after.map(|counter| (counter.used, counter.limit));
        allotment(connection, name, "", amount)?;
    }
    for ((name, holder), tracked) in rows.holds.iter().filter(|(_, tracked)| tracked.changed()) {
        allotment(connection, name, holder, tracked.after.map(|amount| (amount, 0)))?;
    }
    let new = rows.commands.values().filter(|tracked| tracked.changed());
    for command in new.filter_map(|tracked| tracked.after.as_ref()) {
        let (status, body) = (command.reply.status, command.reply.body.text());
        let subject = command.subject.as_ref().map(Key::as_str);
        execute(
            connection,
            "INSERT INTO commands VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![command.id, command.digest, status, body, now.millis(), subject],
        )?;
    }
    for cursor in rows.cursors.values().filter(|tracked| tracked.changed()) {
        let Some(CursorMove { name, seq, detail, fence }) = &cursor.after else { continue };
        execute(
            connection,
            "INSERT OR REPLACE INTO cursors VALUES (?1, ?2, ?3, ?4)",
            params![name, seq, detail.text(), fence],
        )?;
    }
    blobs(connection, rows, now)
}

fn blobs(connection: &Connection, rows: &BatchState, now: Timestamp) -> rusqlite::Result<()> {
    for (key, name) in &rows.blob_removals {
        let sql = "DELETE FROM blobs WHERE key = ?1 AND (?2 IS NULL OR name = ?2)";
        execute(connection, sql, params![key.as_str(), name])?;
    }
    for (place, StoredBlob { digest, size, sealed, parts, data }) in &rows.blob_data {
        let stored = rows.blobs.get(place).and_then(|tracked| tracked.after);
        let version = stored.map(|(version, _)| version);
        let (key, name) = place;
        execute(
            connection,
            "INSERT OR REPLACE INTO blobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                key.as_str(),
                name,
                version,
                digest,
                size,
                sealed,
                parts,
                now.millis(),
                data.as_ref()
            ],
        )?;
    }
    Ok(())
}

/// Executes a prepared statement.
pub fn execute(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(params).map(|_| ())
}

pub fn logs(
    connection: &Connection,
    numbered: &NumberedLogs,
    head: &LogHeads,
) -> rusqlite::Result<()> {
    for event in &numbered.events {
        let (subject, at, data) = (event.subject.as_str(), event.at.millis(), event.data.text());
        execute(
            connection,
            "INSERT INTO events (seq, type, subject, org, at, data, kind, command, trace, effects)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                event.seq,
                event.kind,
                subject,
                event.org,
                at,
                data,
                event.subject.kind(),
                event.cause.command,
                event.cause.trace.map(|trace| trace.to_string()),
                event.effects_text()
            ],
        )?;
    }
    for audit in &numbered.audit {
        let entry = &audit.entry;
        execute(
            connection,
            "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            params![
                audit.seq,
                audit.at.millis(),
                entry.actor,
                entry.action,
                entry.target,
                entry.org,
                entry.origin,
                entry.outcome,
                entry.request_id,
                entry.before.text(),
                entry.after.text(),
                audit.hash
            ],
        )?;
    }
    execute(
        connection,
        "UPDATE meta SET event_seq = ?1, audit_seq = ?2, audit_hash = ?3, archived_seq = ?4, archived_hash = ?5",
        params![
            head.event_seq,
            head.audit_seq,
            head.audit_hash,
            head.archived.seq,
            head.archived.hash
        ],
    )
}

fn create(connection: &Connection, object: &Object) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO objects (key, kind, org, owner, name, description, phase, labels, spec, status,
             generation, observed, revision, created_at, updated_at, deleted_at, cause)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?;
    with_columns(object, |columns| statement.execute(columns))?;
    text(connection, connection.last_insert_rowid(), object)
}

/// The kind and the time of creation do not change.
fn update(connection: &Connection, object: &Object) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE objects SET org = ?3, owner = ?4, name = ?5, description = ?6, phase = ?7, labels = ?8,
             spec = ?9, status = ?10, generation = ?11, observed = ?12, revision = ?13,
             updated_at = ?15, deleted_at = ?16, cause = ?17
         WHERE key = ?1 RETURNING num",
    )?;
    let num = with_columns(object, |columns| statement.query_row(columns, |row| row.get(0)))?;
    text(connection, num, object)
}

fn with_columns<T>(object: &Object, run: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
    let labels = serde_json::to_string(&object.labels).expect("a map of strings serialises");
    run(params![
        object.key.as_str(),
        object.key.kind(),
        object.org,
        object.owner,
        object.name,
        object.description,
        object.phase,
        labels,
        object.spec.text(),
        object.status.text(),
        object.generation,
        object.observed,
        object.revision,
        object.created_at.millis(),
        object.updated_at.millis(),
        object.deleted_at.map(Timestamp::millis),
        cause_text(&object.cause)
    ])
}

fn cause_text(cause: &Cause) -> String {
    serde_json::to_string(cause).expect("two strings serialise")
}

fn transition(connection: &Connection, object: &Object) -> rusqlite::Result<()> {
    execute(
        connection,
        "UPDATE objects SET phase = ?2, status = ?3, observed = ?4, revision = ?5, updated_at = ?6
         WHERE key = ?1",
        params![
            object.key.as_str(),
            object.phase,
            object.status.text(),
            object.observed,
            object.revision,
            object.updated_at.millis()
        ],
    )
}

fn text(connection: &Connection, num: i64, object: &Object) -> rusqlite::Result<()> {
    let tags: Vec<String> = object.labels.iter().map(|(key, value)| tag(key, value)).collect();
    let words: Vec<String> = object.words().iter().map(|word| token(word)).collect();
    execute(
        connection,
        "INSERT OR REPLACE INTO objects_text (rowid, words, tags) VALUES (?1, ?2, ?3)",
        params![num, words.join(" "), tags.join(" ")],
    )
}

/// Encodes a word as one token of the full-text index, in any script: SQLite's tokenizer has other
/// letters than we do. Each non-ASCII character becomes two private-use ones, which no word has;
/// prefixes stay prefixes.
pub fn token(word: &str) -> String {
    let private =
        |n: u32| char::from_u32(0xE000 + n).expect("below 0x1000, so a private character");
    word.chars().fold(String::with_capacity(word.len()), |mut token, c| {
        match c {
            c if c.is_ascii() => token.push(c),
            c => token.extend([private(c as u32 >> 10), private(c as u32 & 0x3FF)]),
        }
        token
    })
}

/// Encodes a label as one token, whatever characters it has. FNV-1a; a collision only costs
/// a row that the query then drops.
pub fn tag(key: &str, value: &str) -> String {
    let bytes = key.bytes().chain([0]).chain(value.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("x{hash:016x}")
}

fn edges(
    connection: &Connection,
    key: &Key,
    depends_on: &BTreeMap<Key, String>,
) -> rusqlite::Result<()> {
    execute(connection, "DELETE FROM edges WHERE dependent = ?1", [key.as_str()])?;
    for (to, role) in depends_on {
        let edge = [key.as_str(), to.as_str(), role];
        execute(connection, "INSERT INTO edges VALUES (?1, ?2, ?3)", edge)?;
    }
    Ok(())
}

fn insert_queue(connection: &Connection, row: &QueueRow) -> rusqlite::Result<()> {
    put_queue(
        connection,
        "INSERT INTO queue (key, org, lane, state, paused, due, attempt, fence, worker, woken, reason, note)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        row,
    )
}

pub fn update_queue(connection: &Connection, row: &QueueRow) -> rusqlite::Result<()> {
    put_queue(
        connection,
        "UPDATE queue SET org = ?2, lane = ?3, state = ?4, paused = ?5, due = ?6, attempt = ?7,
             fence = ?8, worker = ?9, woken = ?10, reason = ?11, note = ?12
         WHERE key = ?1",
        row,
    )
}

fn put_queue(connection: &Connection, sql: &str, row: &QueueRow) -> rusqlite::Result<()> {
    execute(
        connection,
        sql,
        params![
            row.key.as_str(),
            row.org,
            row.lane.number(),
            row.state.number(),
            row.paused,
            row.due.millis(),
            row.attempt,
            row.fence,
            row.worker,
            row.woken.map(Timestamp::millis),
            row.reason,
            row.note
        ],
    )
}

fn allotment(
    connection: &Connection,
    name: &str,
    holder: &str,
    amount: Option<(i64, i64)>,
) -> rusqlite::Result<()> {
    match amount {
        Some((amount, limit)) => execute(
            connection,
            "INSERT OR REPLACE INTO allotments VALUES (?1, ?2, ?3, ?4)",
            params![name, holder, amount, limit],
        ),
        None => execute(
            connection,
            "DELETE FROM allotments WHERE counter = ?1 AND holder = ?2",
            [name, holder],
        ),
    }
}
