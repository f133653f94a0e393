//! Locks and loads the rows that a batch touches, in key order, for admission.

use std::collections::BTreeSet;

use deadpool_postgres::Object as Pooled;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Error, Row, Statement};

use super::statements::Statements;
use crate::admission::{BatchState, Counter, DEPENDENTS_AT_ONCE, RowSet, Tracked};
use crate::store::sql::{self, Row as _};
use crate::{Json, Key};

impl sql::Row for Row {
    type Error = Error;

    fn value<T: for<'a> FromSql<'a>>(&self, column: usize) -> Result<T, Error> {
        self.try_get(column)
    }

    fn text(&self, column: usize) -> Result<&str, Error> {
        self.try_get(column)
    }

    /// JSON columns hold valid JSON by construction.
    fn json(&self, column: usize) -> Result<Json, Error> {
        Ok(Json::stored(self.try_get(column)?).unwrap_or_default())
    }
}

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
            blobs(client, &sql.blobs_lock, touched),
            over(client, &sql.cursors_lock, touched.cursors.iter().map(String::as_str).collect()),
        )
    };
    let (objects, others) =
        if touched.dependents_of.is_empty() && touched.dependencies_of.is_empty() {
            futures::try_join!(locked, others(&queue))?
        } else {
            let (objects, dependents, dependencies) = futures::try_join!(
                locked,
                dependents(client, &sql.dependents, texts(&touched.dependents_of)),
                over(client, &sql.dependencies, texts(&touched.dependencies_of)),
            )?;
            for (map, found) in
                [(&mut rows.dependents, dependents), (&mut rows.dependencies, dependencies)]
            {
                for row in found {
                    map.entry(row.key(0)?).or_default().insert(row.key(1)?, row.value(2)?);
                }
            }
            rows.page_dependents(DEPENDENTS_AT_ONCE);
            let neighbours = rows.dependents.values().chain(rows.dependencies.values());
            queue.extend(neighbours.flat_map(|map| map.keys().cloned()));
            (objects, others(&queue).await?)
        };
    fill(&mut rows, objects, others)?;
    Ok(rows)
}

/// Rows of the queue, allotments, leases, commands, blobs and cursors.
type Others = (Vec<Row>, Vec<Row>, Vec<Row>, Vec<Row>, Vec<Row>, Vec<Row>);

fn fill(rows: &mut BatchState, objects: Vec<Row>, others: Others) -> Result<(), Error> {
    let (queued, allotted, leased, commanded, blobs, cursors) = others;
    for row in &objects {
        rows.objects.insert(row.key(0)?, Tracked::loaded(row.value(1)?));
    }
    for row in &queued {
        rows.queue.insert(row.key(0)?, Tracked::loaded(sql::queue_row(row)?));
    }
    for row in &allotted {
        let (counter, holder): (String, String) = (row.value(0)?, row.value(1)?);
        let (amount, limit) = (row.value(2)?, row.value(3)?);
        if holder.is_empty() {
            rows.counters.insert(counter, Tracked::loaded(Counter { used: amount, limit }));
        } else {
            rows.holds.insert((counter, holder), Tracked::loaded(amount));
        }
    }
    for row in &leased {
        rows.leases.insert(row.value(3)?, sql::lease(row)?);
    }
    for row in &blobs {
        let stored = (row.value(2)?, row.value(3)?);
        rows.blobs.insert((row.key(0)?, row.value(1)?), Tracked::loaded(stored));
    }
    for row in &cursors {
        rows.cursors.insert(row.value(0)?, Tracked::loaded(sql::cursor(row)?));
    }
    for row in &commanded {
        rows.commands.insert(row.value(0)?, Tracked::loaded(sql::command(row)?));
    }
    Ok(())
}

/// Runs a statement over a set; nothing if the set is empty.
async fn over(client: &Pooled, statement: &Statement, set: Vec<&str>) -> Result<Vec<Row>, Error> {
    if set.is_empty() { Ok(Vec::new()) } else { client.query(statement, &[&set]).await }
}

/// One more than are woken at once shows that there are more.
async fn dependents(
    client: &Pooled,
    statement: &Statement,
    of: Vec<&str>,
) -> Result<Vec<Row>, Error> {
    let limit = DEPENDENTS_AT_ONCE as i64 + 1;
    if of.is_empty() { Ok(Vec::new()) } else { client.query(statement, &[&of, &limit]).await }
}

fn texts(keys: &BTreeSet<Key>) -> Vec<&str> {
    keys.iter().map(Key::as_str).collect()
}

async fn blobs(client: &Pooled, sql: &Statement, touched: &RowSet) -> Result<Vec<Row>, Error> {
    if touched.blobs.is_empty() {
        return Ok(Vec::new());
    }
    let places = touched.blobs.iter().map(|(key, name)| (key.as_str(), name.as_str()));
    let (keys, names): (Vec<&str>, Vec<&str>) = places.unzip();
    client.query(sql, &[&keys, &names]).await
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
