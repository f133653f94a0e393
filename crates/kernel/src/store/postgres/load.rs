//! Locks and loads the rows that a batch touches, in key order, for admission.

use std::collections::BTreeSet;

use deadpool_postgres::Object as Pooled;
use tokio_postgres::{Error, Row, Statement};

use super::statements::Statements;
use crate::admission::{BatchState, Counter, Lease, RowSet, StoredRevision, Tracked};
use crate::change::{CommandRecord, CommandReply, Lane};
use crate::queue::{QueueRow, State};
use crate::{Json, Key, Timestamp};

pub const QUEUE_COLUMNS: &str =
    "key, org, lane, state, paused, due, attempt, fence, worker, woken, reason";

/// Locks the objects first: rows that depend on one of them are stable only then.
/// A later transaction that adds a dependency finds the object as this batch leaves it.
pub async fn rows(
    client: &Pooled,
    sql: &Statements,
    touched: &RowSet,
) -> Result<BatchState, Error> {
    let mut rows = BatchState::default();
    let mut queue = touched.queue.clone();
    let locked = over(client, &sql.objects_lock, texts(&touched.objects));
    let others = async |queue: &BTreeSet<Key>| {
        futures::try_join!(
            over(client, &sql.queue_lock, texts(queue)),
            allotments(client, &sql.allotments_lock, touched),
            over(client, &sql.leases_lock, touched.leases.iter().map(String::as_str).collect()),
            over(client, &sql.commands_load, touched.commands.iter().map(String::as_str).collect()),
        )
    };
    let (objects, others) =
        if touched.dependents_of.is_empty() && touched.dependencies_of.is_empty() {
            futures::try_join!(locked, others(&queue))?
        } else {
            let (objects, dependents, dependencies) = futures::try_join!(
                locked,
                over(client, &sql.dependents, texts(&touched.dependents_of)),
                over(client, &sql.dependencies, texts(&touched.dependencies_of)),
            )?;
            for (map, found) in
                [(&mut rows.dependents, dependents), (&mut rows.dependencies, dependencies)]
            {
                for row in found {
                    let neighbour = key(&row, 1);
                    queue.insert(neighbour.clone());
                    map.entry(key(&row, 0)).or_default().insert(neighbour, row.get(2));
                }
            }
            (objects, others(&queue).await?)
        };
    fill(&mut rows, objects, others);
    Ok(rows)
}

fn fill(
    rows: &mut BatchState,
    objects: Vec<Row>,
    others: (Vec<Row>, Vec<Row>, Vec<Row>, Vec<Row>),
) {
    let (queued, allotted, leased, commanded) = others;
    for row in &objects {
        rows.objects.insert(key(row, 0), Tracked::loaded(StoredRevision { revision: row.get(1) }));
    }
    for row in &queued {
        rows.queue.insert(key(row, 0), Tracked::loaded(queue_row(row)));
    }
    for row in &allotted {
        let (counter, holder): (String, String) = (row.get(0), row.get(1));
        let (amount, limit) = (row.get(2), row.get(3));
        if holder.is_empty() {
            rows.counters.insert(counter, Tracked::loaded(Counter { used: amount, limit }));
        } else {
            rows.holds.insert((counter, holder), Tracked::loaded(amount));
        }
    }
    for row in &leased {
        rows.leases.insert(row.get(0), lease(row));
    }
    for row in &commanded {
        rows.commands.insert(row.get(0), Tracked::loaded(command(row)));
    }
}

/// Runs a statement over a set; nothing if the set is empty.
async fn over(client: &Pooled, statement: &Statement, set: Vec<&str>) -> Result<Vec<Row>, Error> {
    if set.is_empty() { Ok(Vec::new()) } else { client.query(statement, &[&set]).await }
}

fn texts(keys: &BTreeSet<Key>) -> Vec<&str> {
    keys.iter().map(Key::as_str).collect()
}

async fn allotments(
    client: &Pooled,
    statement: &Statement,
    touched: &RowSet,
) -> Result<Vec<Row>, Error> {
    if touched.counters.is_empty() {
        return Ok(Vec::new());
    }
    let counters = touched.counters.iter().map(|name| (name.as_str(), ""));
    let holds = touched.holds.iter().map(|(name, holder)| (name.as_str(), holder.as_str()));
    let (names, holders): (Vec<&str>, Vec<&str>) = counters.chain(holds).unzip();
    client.query(statement, &[&names, &holders]).await
}

pub fn key(row: &Row, column: usize) -> Key {
    Key::stored(row.get(column))
}

/// JSON columns hold valid JSON by construction.
pub fn json(row: &Row, column: usize) -> Json {
    Json::stored(row.get(column)).unwrap_or_default()
}

pub fn queue_row(row: &Row) -> QueueRow {
    QueueRow {
        key: key(row, 0),
        org: row.get(1),
        lane: Lane::from_number(row.get(2)),
        state: State::from_number(row.get(3)),
        paused: row.get(4),
        due: Timestamp(row.get(5)),
        attempt: row.get(6),
        fence: row.get(7),
        worker: row.get(8),
        woken: row.get::<_, Option<i64>>(9).map(Timestamp),
        reason: row.get(10),
    }
}

pub fn lease(row: &Row) -> Lease {
    Lease { holder: row.get(1), fence: row.get(2), until: Timestamp(row.get(3)) }
}

pub fn command(row: &Row) -> CommandRecord {
    let status = u16::try_from(row.get::<_, i32>(2)).unwrap_or(500);
    CommandRecord {
        id: row.get(0),
        digest: row.get(1),
        answer: CommandReply { status, body: json(row, 3) },
    }
}
