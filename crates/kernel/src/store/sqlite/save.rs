//! Writes the result of a batch: the changed rows, the events, the audit entries.

use rusqlite::{Connection, params};

use crate::admission::{BatchState, NumberedLogs, WriteKind};
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
            None => drop(
                connection
                    .prepare_cached("DELETE FROM queue WHERE key = ?1")?
                    .execute([key.as_str()])?,
            ),
        }
    }
    for (name, tracked) in rows.counters.iter().filter(|(_, tracked)| tracked.changed()) {
        allotment(
            connection,
            name,
            "",
            tracked.after.map(|counter| (counter.used, counter.limit)),
        )?;
    }
    for ((name, holder), tracked) in rows.holds.iter().filter(|(_, tracked)| tracked.changed()) {
        allotment(connection, name, holder, tracked.after.map(|amount| (amount, 0)))?;
    }
    for command in rows
        .commands
        .values()
        .filter(|tracked| tracked.changed())
        .filter_map(|tracked| tracked.after.as_ref())
    {
        connection.prepare_cached("INSERT INTO commands VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(
            params![
                command.id,
                command.digest,
                command.answer.status,
                command.answer.body.text(),
                now.millis()
            ],
        )?;
    }
    Ok(())
}

pub fn logs(
    connection: &Connection,
    numbered: &NumberedLogs,
    head: &LogHeads,
) -> rusqlite::Result<()> {
    for event in &numbered.events {
        connection.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.execute(
            params![
                event.seq,
                event.kind,
                event.subject.as_str(),
                event.org,
                event.at.millis(),
                event.data.text()
            ],
        )?;
    }
    for audit in &numbered.audit {
        let entry = &audit.entry;
        connection
            .prepare_cached(
                "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute(params![
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
            ])?;
    }
    connection
        .prepare_cached("UPDATE meta SET event_seq = ?1, audit_seq = ?2, audit_hash = ?3")?
        .execute(params![head.event_seq, head.audit_seq, head.audit_hash])?;
    Ok(())
}

fn create(connection: &Connection, object: &Object) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO objects (key, kind, org, owner, name, description, phase, labels, spec, status,
                 generation, observed, revision, created_at, updated_at, deleted_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            object.key.as_str(),
            object.key.kind(),
            object.org,
            object.owner,
            object.name,
            object.description,
            object.phase,
            labels(object),
            object.spec.text(),
            object.status.text(),
            object.generation,
            object.observed,
            object.revision,
            object.created_at.millis(),
            object.updated_at.millis(),
            object.deleted_at.map(Timestamp::millis)
        ])?;
    text(connection, connection.last_insert_rowid(), object)
}

fn update(connection: &Connection, object: &Object) -> rusqlite::Result<()> {
    let num = connection
        .prepare_cached(
            "UPDATE objects SET org = ?2, owner = ?3, name = ?4, description = ?5, phase = ?6, labels = ?7,
                 spec = ?8, status = ?9, generation = ?10, observed = ?11, revision = ?12, updated_at = ?13,
                 deleted_at = ?14
             WHERE key = ?1 RETURNING num",
        )?
        .query_row(
            params![
                object.key.as_str(),
                object.org,
                object.owner,
                object.name,
                object.description,
                object.phase,
                labels(object),
                object.spec.text(),
                object.status.text(),
                object.generation,
                object.observed,
                object.revision,
                object.updated_at.millis(),
                object.deleted_at.map(Timestamp::millis)
            ],
            |row| row.get(0),
        )?;
    text(connection, num, object)
}

fn transition(connection: &Connection, object: &Object) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE objects SET phase = ?2, status = ?3, observed = ?4, revision = ?5, updated_at = ?6
             WHERE key = ?1",
        )?
        .execute(params![
            object.key.as_str(),
            object.phase,
            object.status.text(),
            object.observed,
            object.revision,
            object.updated_at.millis()
        ])?;
    Ok(())
}

fn labels(object: &Object) -> String {
    serde_json::to_string(&object.labels).expect("a map of strings serialises")
}

fn text(connection: &Connection, num: i64, object: &Object) -> rusqlite::Result<()> {
    let tags: Vec<String> = object.labels.iter().map(|(key, value)| tag(key, value)).collect();
    let words: Vec<String> = object.words().iter().map(|word| token(word)).collect();
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO objects_text (rowid, words, tags) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![num, words.join(" "), tags.join(" ")])?;
    Ok(())
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

fn edges(connection: &Connection, key: &Key, depends_on: &[Key]) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM edges WHERE dependent = ?1")?.execute([key.as_str()])?;
    for to in depends_on {
        connection
            .prepare_cached("INSERT OR IGNORE INTO edges VALUES (?1, ?2)")?
            .execute([key.as_str(), to.as_str()])?;
    }
    Ok(())
}

fn insert_queue(connection: &Connection, row: &QueueRow) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO queue (key, lane, state, paused, due, attempt, fence, worker, woken, reason, org)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            row.key.as_str(),
            row.lane.number(),
            row.state.number(),
            row.paused,
            row.due.millis(),
            row.attempt,
            row.fence,
            row.worker,
            row.woken.map(Timestamp::millis),
            row.reason,
            row.org
        ])?;
    Ok(())
}

pub fn update_queue(connection: &Connection, row: &QueueRow) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE queue SET lane = ?2, state = ?3, paused = ?4, due = ?5, attempt = ?6, fence = ?7,
                 worker = ?8, woken = ?9, reason = ?10
             WHERE key = ?1",
        )?
        .execute(params![
            row.key.as_str(),
            row.lane.number(),
            row.state.number(),
            row.paused,
            row.due.millis(),
            row.attempt,
            row.fence,
            row.worker,
            row.woken.map(Timestamp::millis),
            row.reason
        ])?;
    Ok(())
}

fn allotment(
    connection: &Connection,
    name: &str,
    holder: &str,
    amount: Option<(i64, i64)>,
) -> rusqlite::Result<()> {
    match amount {
        Some((amount, limit)) => connection
            .prepare_cached("INSERT OR REPLACE INTO allotments VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![name, holder, amount, limit])?,
        None => connection
            .prepare_cached("DELETE FROM allotments WHERE counter = ?1 AND holder = ?2")?
            .execute([name, holder])?,
    };
    Ok(())
}
