//! Reads: objects, lists and searches, both logs, the queue.

use deadpool_postgres::Object as Pooled;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::failed;
use super::load::{self, QUEUE_COLUMNS, json, key, queue_row};
use crate::admission::Counter;
use crate::change::{AuditDraft, CommandRecord};
use crate::log::{AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use crate::query::{ObjectQuery, QueryPage};
use crate::queue::{QueueRow, State};
use crate::store::{WorkCount, WorkFilter};
use crate::{Key, Object, Result, Timestamp};

const COLUMNS: &str = "num, key, org, owner, name, description, phase, labels::text, spec::text, status::text, generation, observed, revision, created_at, updated_at, deleted_at";

fn object(row: &Row) -> (i64, Object) {
    let object = Object {
        key: key(row, 1),
        org: row.get(2),
        owner: row.get(3),
        name: row.get(4),
        description: row.get(5),
        phase: row.get(6),
        labels: match row.get(7) {
            "{}" => Default::default(),
            labels => serde_json::from_str(labels).unwrap_or_default(),
        },
        spec: json(row, 8),
        status: json(row, 9),
        generation: row.get(10),
        observed: row.get(11),
        revision: row.get(12),
        created_at: Timestamp(row.get(13)),
        updated_at: Timestamp(row.get(14)),
        deleted_at: row.get::<_, Option<i64>>(15).map(Timestamp),
    };
    (row.get(0), object)
}

/// A statement built from its conditions.
#[derive(Default)]
struct Where {
    sql: String,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Where {
    fn and(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'static) {
        self.values.push(Box::new(value));
        let number = format!("${}", self.values.len());
        self.plain(&condition.replace('?', &number));
    }

    fn maybe(&mut self, condition: &str, value: Option<impl ToSql + Sync + Send + 'static>) {
        if let Some(value) = value {
            self.and(condition, value);
        }
    }

    fn plain(&mut self, condition: &str) {
        let word = if self.sql.is_empty() { "WHERE" } else { "AND" };
        self.sql.push_str(&format!(" {word} {condition}"));
    }

    /// The limit is a parameter: each distinct text is prepared and cached per connection.
    fn limit(&mut self, limit: usize) -> String {
        self.values.push(Box::new(i64::try_from(limit).unwrap_or(i64::MAX)));
        format!("LIMIT ${}", self.values.len())
    }

    async fn query(&self, client: &Pooled, sql: &str) -> Result<Vec<Row>> {
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let values: Vec<&(dyn ToSql + Sync)> =
            self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        client.query(&statement, &values).await.map_err(failed)
    }
}

pub async fn objects(client: &Pooled, keys: &[Key]) -> Result<Vec<Object>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM unnest($1::text[]) WITH ORDINALITY AS wanted (key, place)
         JOIN objects USING (key) ORDER BY place"
    );
    let mut filter = Where::default();
    let keys: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
    filter.values.push(Box::new(keys));
    Ok(filter.query(client, &sql).await?.iter().map(|row| object(row).1).collect())
}

pub async fn find(client: &Pooled, find: &ObjectQuery) -> Result<QueryPage> {
    let mut filter = Where::default();
    if !find.words.is_empty() {
        let query: Vec<String> = find.words.iter().map(|word| format!("'{word}':*")).collect();
        filter.and("words @@ ?::text::tsquery", query.join(" & "));
    }
    if !find.labels.is_empty() {
        let labels: std::collections::BTreeMap<_, _> = find.labels.iter().cloned().collect();
        filter.and("labels @> ?::text::jsonb", serde_json::to_string(&labels).unwrap_or_default());
    }
    let dependency = find.depends_on.as_ref().map(|key| key.as_str().to_owned());
    filter.maybe("key IN (SELECT dependent FROM edges WHERE dependency = ?)", dependency);
    filter.maybe("org = ?", find.org.clone());
    filter.maybe("owner = ?", find.owner.clone());
    filter.maybe("kind = ?", find.kind.clone());
    filter.maybe("phase = ?", find.phase.clone());
    filter.maybe("name = ?", find.name.clone());
    filter.maybe("num < ?", find.after);
    if !find.deleted {
        filter.plain("deleted_at IS NULL");
    }
    let limit = filter.limit(find.limit + 1);
    let sql = format!("SELECT {COLUMNS} FROM objects{} ORDER BY num DESC {limit}", filter.sql);
    let rows = filter.query(client, &sql).await?;
    let more = rows.len() > find.limit;
    let mut objects: Vec<(i64, Object)> = rows.iter().take(find.limit).map(object).collect();
    let next = if more { objects.last().map(|(num, _)| *num) } else { None };
    Ok(QueryPage { objects: objects.drain(..).map(|(_, object)| object).collect(), next })
}

pub async fn keys(client: &Pooled, sql: &str, of: &Key) -> Result<Vec<Key>> {
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    let rows = client.query(&statement, &[&of.as_str()]).await.map_err(failed)?;
    Ok(rows.iter().map(|row| key(row, 0)).collect())
}

pub async fn counter(client: &Pooled, name: &str) -> Result<Option<Counter>> {
    let sql = "SELECT amount, cap FROM allotments WHERE counter = $1 AND holder = ''";
    let row = client.query_opt(sql, &[&name]).await.map_err(failed)?;
    Ok(row.map(|row| Counter { used: row.get(0), limit: row.get(1) }))
}

pub async fn command(client: &Pooled, id: &str) -> Result<Option<CommandRecord>> {
    let sql = "SELECT id, digest, status, body FROM commands WHERE id = $1";
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    let row = client.query_opt(&statement, &[&id]).await.map_err(failed)?;
    Ok(row.as_ref().map(load::command))
}

pub async fn head(client: &Pooled) -> Result<LogHeads> {
    let sql = "SELECT event_seq, audit_seq, audit_hash FROM meta";
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    let row = client.query_one(&statement, &[]).await.map_err(failed)?;
    Ok(LogHeads { event_seq: row.get(0), audit_seq: row.get(1), audit_hash: row.get(2) })
}

pub async fn events(
    client: &Pooled,
    after: i64,
    filter: &EventFilter,
    limit: usize,
) -> Result<Vec<Event>> {
    let mut conditions = Where::default();
    conditions.and("seq > ?", after);
    conditions.maybe("subject = ?", filter.subject.as_ref().map(|key| key.as_str().to_owned()));
    conditions.maybe("org = ?", filter.org.clone());
    conditions.maybe("split_part(subject, '/', 1) = ?", filter.kind.clone());
    let limit = conditions.limit(limit);
    let sql = format!(
        "SELECT seq, type, subject, org, at, data FROM events{} ORDER BY seq {limit}",
        conditions.sql
    );
    let rows = conditions.query(client, &sql).await?;
    let event = |row: &Row| Event {
        seq: row.get(0),
        kind: row.get(1),
        subject: key(row, 2),
        org: row.get(3),
        at: Timestamp(row.get(4)),
        data: json(row, 5),
    };
    Ok(rows.iter().map(event).collect())
}

pub async fn audit(client: &Pooled, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>> {
    let mut conditions = Where::default();
    conditions.and("seq > ?", filter.after);
    conditions.maybe("seq < ?", filter.before);
    conditions.maybe("actor = ?", filter.actor.clone());
    conditions.maybe("target = ?", filter.target.clone());
    conditions.maybe("org = ?", filter.org.clone());
    let order = if filter.before.is_some() { "DESC" } else { "ASC" };
    let limit = conditions.limit(limit);
    let sql = format!(
        "SELECT seq, at, actor, action, target, org, origin, outcome, request_id, before, after, hash
         FROM audit{} ORDER BY seq {order} {limit}",
        conditions.sql
    );
    let rows = conditions.query(client, &sql).await?;
    let entry = |row: &Row| AuditEntry {
        seq: row.get(0),
        at: Timestamp(row.get(1)),
        entry: AuditDraft {
            actor: row.get(2),
            action: row.get(3),
            target: row.get(4),
            org: row.get(5),
            origin: row.get(6),
            outcome: row.get(7),
            request_id: row.get(8),
            before: json(row, 9),
            after: json(row, 10),
        },
        hash: row.get(11),
    };
    Ok(rows.iter().map(entry).collect())
}

pub async fn work(client: &Pooled, filter: &WorkFilter, limit: usize) -> Result<Vec<QueueRow>> {
    let mut conditions = Where::default();
    conditions.maybe("key = ?", filter.key.as_ref().map(|key| key.as_str().to_owned()));
    conditions.maybe("org = ?", filter.org.clone());
    conditions.maybe("state = ?", filter.state.map(State::number));
    conditions.maybe("paused = ?", filter.paused);
    if filter.failing {
        conditions.plain("attempt > 0");
    }
    let limit = conditions.limit(limit);
    let sql = format!("SELECT {QUEUE_COLUMNS} FROM queue{} ORDER BY due {limit}", conditions.sql);
    Ok(conditions.query(client, &sql).await?.iter().map(queue_row).collect())
}

pub async fn work_counts(client: &Pooled) -> Result<Vec<WorkCount>> {
    let sql = "SELECT split_part(key, '/', 1), state, paused, attempt > 0, count(*)
         FROM queue GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4";
    let rows = client.query(sql, &[]).await.map_err(failed)?;
    let count = |row: &Row| WorkCount {
        kind: row.get(0),
        state: State::from_number(row.get(1)),
        paused: row.get(2),
        failing: row.get(3),
        rows: row.get(4),
    };
    Ok(rows.iter().map(count).collect())
}
