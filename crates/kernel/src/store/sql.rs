//! The SQL that both databases share: reads of the logs and the queue, and how rows become values.

use axum::body::Bytes;
use rusqlite::types::FromSql as FromSqlite;
use tokio_postgres::types::FromSql as FromPostgres;

use super::{WorkCount, WorkFilter};
use crate::admission::Lease;
use crate::blob::BlobInfo;
use crate::change::{AuditDraft, Cause, CommandRecord, CommandReply, CursorMove, Edge, Lane};
use crate::log::{AuditEntry, AuditFilter, AuditPosition, Event, EventFilter, LogHeads};
use crate::query::{ObjectQuery, WALK_MAX};
use crate::queue::{QueueRow, State};
use crate::telemetry::Trace;
use crate::{Json, Key, Object, Timestamp};

/// A parameter of one database's statements, and how its dialect differs.
pub trait Value: From<String> + From<i64> + From<i16> + From<bool> {
    const PLACEHOLDER: char;

    /// The kind of the key in `column`.
    fn kind_of(column: &str) -> String;
}

/// The conditions of a statement, and their values. `?` in a condition stands for its value.
pub struct Where<V> {
    pub sql: String,
    pub values: Vec<V>,
}

impl<V: Value> Where<V> {
    pub fn new() -> Where<V> {
        Where { sql: String::new(), values: Vec::new() }
    }

    pub fn and(&mut self, condition: &str, value: impl Into<V>) {
        let placeholder = self.placeholder(value);
        self.plain(&condition.replace('?', &placeholder));
    }

    pub fn maybe(&mut self, condition: &str, value: Option<impl Into<V>>) {
        if let Some(value) = value {
            self.and(condition, value);
        }
    }

    pub fn plain(&mut self, condition: &str) {
        let word = if self.sql.is_empty() { "WHERE" } else { "AND" };
        self.sql.push_str(&format!(" {word} {condition}"));
    }

    /// The limit is a parameter: each distinct text is prepared and cached per connection.
    pub fn order_by(mut self, select: &str, order: &str, limit: usize) -> Select<V> {
        let limit = self.placeholder(i64::try_from(limit).unwrap_or(i64::MAX));
        let sql = format!("{select}{} ORDER BY {order} LIMIT {limit}", self.sql);
        Select { sql, values: self.values }
    }

    fn placeholder(&mut self, value: impl Into<V>) -> String {
        self.values.push(value.into());
        format!("{}{}", V::PLACEHOLDER, self.values.len())
    }
}

/// A statement and its values.
pub struct Select<V> {
    pub sql: String,
    pub values: Vec<V>,
}

/// Selects events. `from` gets the sequence number to start after, and the subject or else the kind,
/// if there is one, as its first two parameters.
pub fn events<V: Value>(from: &str, after: i64, filter: &EventFilter, limit: usize) -> Select<V> {
    let mut conditions = Where::new();
    conditions.and("seq > ?", after);
    conditions.maybe("subject = ?", filter.subject.clone().map(String::from));
    conditions.maybe("kind = ?", filter.kind.clone());
    conditions.maybe("org = ?", filter.org.clone());
    let select =
        format!("SELECT seq, type, subject, org, at, data, command, trace, effects FROM {from}");
    conditions.order_by(&select, "seq", limit)
}

/// Selects audit entries. `from` gets the sequence number to start after and the target, if there is
/// one, as its first two parameters.
pub fn audit<V: Value>(from: &str, filter: &AuditFilter, limit: usize) -> Select<V> {
    let mut conditions = Where::new();
    conditions.and("seq > ?", filter.after);
    conditions.maybe("target = ?", filter.target.clone());
    conditions.maybe("seq < ?", filter.before);
    conditions.maybe("actor = ?", filter.actor.clone());
    conditions.maybe("org = ?", filter.org.clone());
    let order = if filter.before.is_some() { "seq DESC" } else { "seq" };
    let select = format!(
        "SELECT seq, at, actor, action, target, org, origin, outcome, request_id, before, after, hash
         FROM {from}"
    );
    conditions.order_by(&select, order, limit)
}

/// Restricts objects to those that depend on one, or that it depends on, directly or not. `UNION`
/// visits each object once, so that a cycle ends; the limit bounds the rest.
pub fn related<V: Value>(conditions: &mut Where<V>, find: &ObjectQuery) {
    let walk = |found: &str, given: &str| {
        format!(
            "objects.key IN (WITH RECURSIVE walk (place) AS (
                 SELECT {found} FROM edges WHERE {given} = ?
                 UNION SELECT {found} FROM edges JOIN walk ON {given} = place)
             SELECT place FROM walk LIMIT {WALK_MAX})"
        )
    };
    let text = |key: &Option<Key>| key.clone().map(String::from);
    conditions.maybe(&walk("dependent", "dependency"), text(&find.depends_on));
    conditions.maybe(&walk("dependency", "dependent"), text(&find.used_by));
}

pub fn work<V: Value>(filter: &WorkFilter, limit: usize) -> Select<V> {
    let mut conditions = Where::new();
    conditions.maybe("key = ?", filter.key.clone().map(String::from));
    conditions.maybe("org = ?", filter.org.clone());
    conditions.maybe("state = ?", filter.state.map(State::number));
    conditions.maybe("paused = ?", filter.paused);
    if filter.failing {
        conditions.plain("attempt > 0");
    }
    conditions.order_by(&format!("SELECT {QUEUE_COLUMNS} FROM queue"), "due", limit)
}

pub fn work_counts<V: Value>() -> Select<V> {
    let kind = V::kind_of("key");
    let sql = format!(
        "SELECT {kind}, state, paused, attempt > 0, count(*)
         FROM queue GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
    );
    Select { sql, values: Vec::new() }
}

pub const QUEUE_COLUMNS: &str =
    "key, org, lane, state, paused, due, attempt, fence, worker, woken, reason, note";

// SQLite numbers `$1` and `$2` in the order in which they first appear.
pub const DEPENDENCIES: &str = "SELECT dependency, role FROM edges WHERE dependent = $1 ORDER BY 1";
pub const DEPENDENTS: &str = "SELECT dependent, role FROM edges WHERE dependency = $1 ORDER BY 1";
pub const DEPENDENTS_AFTER: &str =
    "SELECT dependent FROM edges WHERE dependency = $1 AND dependent > $2 ORDER BY 1 LIMIT $3";
pub const COUNTER: &str = "SELECT amount, cap FROM allotments WHERE counter = $1 AND holder = ''";
pub const COMMAND: &str = "SELECT id, digest, status, body, subject FROM commands WHERE id = $1";
pub const LEASE: &str = "SELECT holder, fence, until FROM leases WHERE name = $1";
pub const UNLEASE: &str = "UPDATE leases SET until = 0 WHERE name = $1 AND fence = $2";
pub const LOG_HEADS: &str =
    "SELECT event_seq, audit_seq, audit_hash, archived_seq, archived_hash FROM meta";
pub const BLOB: &str = "SELECT key, name, version, digest, size, sealed, parts, at, data FROM blobs
     WHERE key = $1 AND name = $2";
pub const BLOBS: &str = "SELECT key, name, version, digest, size, sealed, parts, at FROM blobs
     WHERE key = $1 ORDER BY name";
pub const CURSORS: &str = "SELECT name, seq, detail, fence FROM cursors ORDER BY name";
pub const CURSOR: &str = "SELECT name, seq, detail, fence FROM cursors WHERE name = $1";
pub const FIRST_EVENT: &str = "SELECT min(seq) FROM events";

/// A row of either database.
pub trait Row {
    type Error;

    fn value<T: FromSqlite + for<'a> FromPostgres<'a>>(
        &self,
        column: usize,
    ) -> Result<T, Self::Error>;

    fn text(&self, column: usize) -> Result<&str, Self::Error>;

    fn json(&self, column: usize) -> Result<Json, Self::Error>;

    fn key(&self, column: usize) -> Result<Key, Self::Error> {
        Ok(Key::stored(self.text(column)?))
    }

    fn time(&self, column: usize) -> Result<Timestamp, Self::Error> {
        Ok(Timestamp(self.value(column)?))
    }

    fn maybe_time(&self, column: usize) -> Result<Option<Timestamp>, Self::Error> {
        Ok(self.value::<Option<i64>>(column)?.map(Timestamp))
    }
}

/// The object, and its position in lists.
pub fn object<R: Row>(row: &R) -> Result<(i64, Object), R::Error> {
    let object = Object {
        key: row.key(1)?,
        org: row.value(2)?,
        owner: row.value(3)?,
        name: row.value(4)?,
        description: row.value(5)?,
        phase: row.value(6)?,
        labels: match row.text(7)? {
            "{}" => Default::default(),
            labels => serde_json::from_str(labels).unwrap_or_default(),
        },
        spec: row.json(8)?,
        status: row.json(9)?,
        generation: row.value(10)?,
        observed: row.value(11)?,
        revision: row.value(12)?,
        created_at: row.time(13)?,
        updated_at: row.time(14)?,
        deleted_at: row.maybe_time(15)?,
        cause: match row.text(16)? {
            "{}" => Cause::default(),
            cause => serde_json::from_str(cause).unwrap_or_default(),
        },
    };
    Ok((row.value(0)?, object))
}

pub fn queue_row<R: Row>(row: &R) -> Result<QueueRow, R::Error> {
    Ok(QueueRow {
        key: row.key(0)?,
        org: row.value(1)?,
        lane: Lane::from_number(row.value(2)?),
        state: State::from_number(row.value(3)?),
        paused: row.value(4)?,
        due: row.time(5)?,
        attempt: row.value(6)?,
        fence: row.value(7)?,
        worker: row.value(8)?,
        woken: row.maybe_time(9)?,
        reason: row.value(10)?,
        note: row.value(11)?,
    })
}

pub fn work_count<R: Row>(row: &R) -> Result<WorkCount, R::Error> {
    Ok(WorkCount {
        kind: row.value(0)?,
        state: State::from_number(row.value(1)?),
        paused: row.value(2)?,
        failing: row.value(3)?,
        rows: row.value(4)?,
    })
}

pub fn lease<R: Row>(row: &R) -> Result<Lease, R::Error> {
    Ok(Lease { holder: row.value(0)?, fence: row.value(1)?, until: row.time(2)? })
}

pub fn command<R: Row>(row: &R) -> Result<CommandRecord, R::Error> {
    let status = u16::try_from(row.value::<i32>(2)?).unwrap_or(500);
    let reply = CommandReply { status, body: row.json(3)? };
    let subject = row.value::<Option<String>>(4)?.map(|key| Key::stored(&key));
    Ok(CommandRecord { id: row.value(0)?, digest: row.value(1)?, reply, subject })
}

pub fn log_heads<R: Row>(row: &R) -> Result<LogHeads, R::Error> {
    Ok(LogHeads {
        event_seq: row.value(0)?,
        audit_seq: row.value(1)?,
        audit_hash: row.value(2)?,
        archived: AuditPosition { seq: row.value(3)?, hash: row.value(4)? },
    })
}

pub fn event<R: Row>(row: &R) -> Result<Event, R::Error> {
    Ok(Event {
        seq: row.value(0)?,
        kind: row.value(1)?,
        subject: row.key(2)?,
        org: row.value(3)?,
        at: row.time(4)?,
        data: row.json(5)?,
        cause: Cause {
            command: row.value(6)?,
            trace: row.value::<Option<String>>(7)?.and_then(|text| Trace::parse(&text)),
        },
        effects: row.value::<Option<String>>(8)?.and_then(|text| serde_json::from_str(&text).ok()),
    })
}

pub fn blob_info<R: Row>(row: &R) -> Result<BlobInfo, R::Error> {
    Ok(BlobInfo {
        key: row.key(0)?,
        name: row.value(1)?,
        version: row.value(2)?,
        digest: row.value(3)?,
        size: row.value(4)?,
        sealed: row.value(5)?,
        parts: row.value(6)?,
        at: row.time(7)?,
    })
}

/// A blob and its data.
pub fn blob<R: Row>(row: &R) -> Result<(BlobInfo, Bytes), R::Error> {
    Ok((blob_info(row)?, row.value::<Vec<u8>>(8)?.into()))
}

pub fn edge<R: Row>(row: &R) -> Result<Edge, R::Error> {
    Ok(Edge { key: row.key(0)?, role: row.value(1)? })
}

pub fn cursor<R: Row>(row: &R) -> Result<CursorMove, R::Error> {
    Ok(CursorMove {
        name: row.value(0)?,
        seq: row.value(1)?,
        detail: row.json(2)?,
        fence: row.value(3)?,
    })
}

pub fn audit_entry<R: Row>(row: &R) -> Result<AuditEntry, R::Error> {
    let entry = AuditDraft {
        actor: row.value(2)?,
        action: row.value(3)?,
        target: row.value(4)?,
        org: row.value(5)?,
        origin: row.value(6)?,
        outcome: row.value(7)?,
        request_id: row.value(8)?,
        before: row.json(9)?,
        after: row.json(10)?,
    };
    Ok(AuditEntry { seq: row.value(0)?, at: row.time(1)?, entry, hash: row.value(11)? })
}
