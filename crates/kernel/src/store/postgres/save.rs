//! Writes the result of a batch with one statement per table and kind of write.

use deadpool_postgres::Object as Pooled;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};

use super::statements::Statements;
use crate::admission::{BatchState, NumberedLogs};
use crate::change::WriteKind;
use crate::log::LogHeads;
use crate::queue::QueueRow;
use crate::{Key, Object, Timestamp};

type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

macro_rules! columns {
    ($($column:expr),* $(,)?) => { vec![$(Box::new($column) as Column),*] };
}

/// Executes a statement over columns, unless there are no rows.
///
/// Takes a prepared statement, so that it is sent at the first poll: joined futures send in the
/// order in which they are listed, which [`super::commit`] relies on.
async fn run(
    client: &Pooled,
    statement: &Statement,
    rows: usize,
    columns: Vec<Column<'_>>,
) -> Result<(), Error> {
    if rows > 0 {
        let params: Vec<&(dyn ToSql + Sync)> =
            columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
        client.execute(statement, &params).await?;
    }
    Ok(())
}

fn list<'a, T, U>(all: &[&'a T], field: impl Fn(&'a T) -> U) -> Vec<U> {
    all.iter().map(|row| field(row)).collect()
}

pub async fn rows(
    client: &Pooled,
    sql: &Statements,
    rows: &BatchState,
    now: Timestamp,
) -> Result<(), Error> {
    let of = |wanted: WriteKind| -> Vec<&Object> {
        rows.writes.values().filter(|(_, kind)| *kind == wanted).map(|(object, _)| object).collect()
    };
    futures::try_join!(
        objects(client, &sql.create, of(WriteKind::Create)),
        objects(client, &sql.update, of(WriteKind::Update)),
        transitions(client, &sql.transition, of(WriteKind::Transition)),
        edges(client, sql, rows),
        queue(client, sql, rows),
        allotments(client, sql, rows),
        commands(client, sql, rows, now),
        blobs(client, sql, rows, now),
        cursors(client, sql, rows),
    )?;
    Ok(())
}

async fn objects(client: &Pooled, sql: &Statement, all: Vec<&Object>) -> Result<(), Error> {
    let labels =
        |o: &Object| serde_json::to_string(&o.labels).expect("a map of strings serialises");
    let columns = columns![
        list(&all, |o| o.key.as_str()),
        list(&all, |o| o.key.kind()),
        list(&all, |o| o.org.as_str()),
        list(&all, |o| o.owner.as_str()),
        list(&all, |o| o.name.as_str()),
        list(&all, |o| o.description.as_str()),
        list(&all, |o| o.phase.as_str()),
        list(&all, labels),
        list(&all, |o| o.spec.text()),
        list(&all, |o| o.status.text()),
        list(&all, |o| o.words().join(" ")),
        list(&all, |o| o.generation),
        list(&all, |o| o.observed),
        list(&all, |o| o.revision),
        list(&all, |o| o.created_at.millis()),
        list(&all, |o| o.updated_at.millis()),
        list(&all, |o| o.deleted_at.map(Timestamp::millis)),
        list(&all, |o| serde_json::to_string(&o.cause).expect("two strings serialise")),
    ];
    run(client, sql, all.len(), columns).await
}

async fn transitions(client: &Pooled, sql: &Statement, all: Vec<&Object>) -> Result<(), Error> {
    let columns = columns![
        list(&all, |o| o.key.as_str()),
        list(&all, |o| o.phase.as_str()),
        list(&all, |o| o.status.text()),
        list(&all, |o| o.observed),
        list(&all, |o| o.revision),
        list(&all, |o| o.updated_at.millis()),
    ];
    run(client, sql, all.len(), columns).await
}

async fn edges(client: &Pooled, sql: &Statements, rows: &BatchState) -> Result<(), Error> {
    let from: Vec<&str> = rows.edges.keys().map(|key| key.as_str()).collect();
    let all = || rows.edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let dependents: Vec<&str> = all().map(|(from, _)| from.as_str()).collect();
    let to: Vec<&str> = all().map(|(_, (to, _))| to.as_str()).collect();
    let roles: Vec<&str> = all().map(|(_, (_, role))| role.as_str()).collect();
    futures::try_join!(
        run(client, &sql.edges_delete, from.len(), columns![from]),
        run(client, &sql.edges_insert, dependents.len(), columns![dependents, to, roles]),
    )?;
    Ok(())
}

async fn queue(client: &Pooled, sql: &Statements, rows: &BatchState) -> Result<(), Error> {
    let changed = || rows.queue.values().filter(|tracked| tracked.changed());
    let put = |new: bool| -> Vec<&QueueRow> {
        changed()
            .filter(|tracked| tracked.before.is_none() == new)
            .filter_map(|tracked| tracked.after.as_ref())
            .collect()
    };
    let gone = changed()
        .filter(|tracked| tracked.after.is_none())
        .filter_map(|tracked| tracked.before.as_ref());
    let gone: Vec<&str> = gone.map(|row| row.key.as_str()).collect();
    futures::try_join!(
        queue_rows(client, &sql.queue_insert, put(true)),
        queue_rows(client, &sql.queue_update, put(false)),
        run(client, &sql.queue_delete, gone.len(), columns![gone]),
    )?;
    Ok(())
}

async fn queue_rows(client: &Pooled, sql: &Statement, all: Vec<&QueueRow>) -> Result<(), Error> {
    let columns = columns![
        list(&all, |row| row.key.as_str()),
        list(&all, |row| row.org.as_str()),
        list(&all, |row| row.lane.number()),
        list(&all, |row| row.state.number()),
        list(&all, |row| row.paused),
        list(&all, |row| row.due.millis()),
        list(&all, |row| row.attempt),
        list(&all, |row| row.fence),
        list(&all, |row| row.worker.as_str()),
        list(&all, |row| row.woken.map(Timestamp::millis)),
        list(&all, |row| row.reason.as_str()),
        list(&all, |row| row.note.as_str()),
    ];
    run(client, sql, all.len(), columns).await
}

/// One new row of `allotments`; counters have an empty holder.
struct Allotment<'a> {
    counter: &'a str,
    holder: &'a str,
    new: bool,
    /// The amount and, for a counter, the limit.
    is: Option<(i64, i64)>,
}

async fn allotments(client: &Pooled, sql: &Statements, rows: &BatchState) -> Result<(), Error> {
    let counters = rows.counters.iter().filter(|(_, tracked)| tracked.changed());
    let counters = counters.map(|(counter, tracked)| Allotment {
        counter,
        holder: "",
        new: tracked.before.is_none(),
        is: tracked.after.map(|counter| (counter.used, counter.limit)),
    });
    let holds = rows.holds.iter().filter(|(_, tracked)| tracked.changed());
    let holds = holds.map(|((counter, holder), tracked)| Allotment {
        counter,
        holder,
        new: tracked.before.is_none(),
        is: tracked.after.map(|amount| (amount, 0)),
    });
    let all: Vec<Allotment> = counters.chain(holds).collect();
    let part = |new: bool, there: bool| -> Vec<&Allotment> {
        all.iter().filter(|row| row.new == new && row.is.is_some() == there).collect()
    };
    let gone = part(false, false);
    let names = columns![list(&gone, |row| row.counter), list(&gone, |row| row.holder)];
    futures::try_join!(
        put_allotments(client, &sql.allotments_insert, part(true, true)),
        put_allotments(client, &sql.allotments_update, part(false, true)),
        run(client, &sql.allotments_delete, gone.len(), names),
    )?;
    Ok(())
}

async fn put_allotments(
    client: &Pooled,
    sql: &Statement,
    all: Vec<&Allotment<'_>>,
) -> Result<(), Error> {
    let columns = columns![
        list(&all, |row| row.counter),
        list(&all, |row| row.holder),
        list(&all, |row| row.is.map_or(0, |(amount, _)| amount)),
        list(&all, |row| row.is.map_or(0, |(_, limit)| limit)),
    ];
    run(client, sql, all.len(), columns).await
}

async fn commands(
    client: &Pooled,
    sql: &Statements,
    rows: &BatchState,
    now: Timestamp,
) -> Result<(), Error> {
    let new = rows.commands.values().filter(|tracked| tracked.changed());
    let all: Vec<_> = new.filter_map(|tracked| tracked.after.as_ref()).collect();
    let columns = columns![
        list(&all, |command| command.id.as_str()),
        list(&all, |command| command.digest.as_str()),
        list(&all, |command| i32::from(command.reply.status)),
        list(&all, |command| command.reply.body.text()),
        now.millis(),
        list(&all, |command| command.subject.as_ref().map(Key::as_str)),
    ];
    run(client, &sql.commands_insert, all.len(), columns).await
}

async fn blobs(
    client: &Pooled,
    sql: &Statements,
    rows: &BatchState,
    now: Timestamp,
) -> Result<(), Error> {
    let (keys, names): (Vec<&str>, Vec<Option<&str>>) =
        rows.blob_removals.iter().map(|(key, name)| (key.as_str(), name.as_deref())).unzip();
    let puts: Vec<_> = rows.blob_data.iter().collect();
    let puts: Vec<_> = puts.iter().collect();
    let version = |place: &(Key, String)| {
        rows.blobs.get(place).and_then(|tracked| tracked.after).map_or(1, |(version, _)| version)
    };
    let columns = columns![
        list(&puts, |(place, _)| place.0.as_str()),
        list(&puts, |(place, _)| place.1.as_str()),
        list(&puts, |(place, _)| version(place)),
        list(&puts, |(_, blob)| blob.digest.as_str()),
        list(&puts, |(_, blob)| blob.size),
        list(&puts, |(_, blob)| blob.sealed),
        list(&puts, |(_, blob)| blob.parts),
        list(&puts, |(_, blob)| blob.data.as_ref()),
        now.millis(),
    ];
    futures::try_join!(
        run(client, &sql.blobs_remove, keys.len(), columns![keys, names]),
        run(client, &sql.blobs_put, puts.len(), columns),
    )?;
    Ok(())
}

async fn cursors(client: &Pooled, sql: &Statements, rows: &BatchState) -> Result<(), Error> {
    let moved = rows.cursors.values().filter(|tracked| tracked.changed());
    let moved: Vec<_> = moved.filter_map(|tracked| tracked.after.as_ref()).collect();
    let columns = columns![
        list(&moved, |cursor| cursor.name.as_str()),
        list(&moved, |cursor| cursor.seq),
        list(&moved, |cursor| cursor.detail.text()),
        list(&moved, |cursor| cursor.fence),
    ];
    run(client, &sql.cursors_put, moved.len(), columns).await
}

pub async fn logs(
    client: &Pooled,
    sql: &Statements,
    numbered: &NumberedLogs,
    head: &LogHeads,
) -> Result<(), Error> {
    let events: Vec<_> = numbered.events.iter().collect();
    let audit: Vec<_> = numbered.audit.iter().collect();
    let event_columns = columns![
        list(&events, |event| event.seq),
        list(&events, |event| event.kind.as_str()),
        list(&events, |event| event.subject.as_str()),
        list(&events, |event| event.org.as_str()),
        list(&events, |event| event.at.millis()),
        list(&events, |event| event.data.text()),
        list(&events, |event| event.subject.kind()),
        list(&events, |event| event.cause.command.as_deref()),
        list(&events, |event| event.cause.trace.map(|trace| trace.to_string())),
        list(&events, |event| event.effects_text()),
    ];
    let audit_columns = columns![
        list(&audit, |audit| audit.seq),
        list(&audit, |audit| audit.at.millis()),
        list(&audit, |audit| audit.entry.actor.as_str()),
        list(&audit, |audit| audit.entry.action.as_str()),
        list(&audit, |audit| audit.entry.target.as_str()),
        list(&audit, |audit| audit.entry.org.as_str()),
        list(&audit, |audit| audit.entry.origin.as_str()),
        list(&audit, |audit| audit.entry.outcome.as_str()),
        list(&audit, |audit| audit.entry.request_id.as_str()),
        list(&audit, |audit| audit.entry.before.text()),
        list(&audit, |audit| audit.entry.after.text()),
        list(&audit, |audit| audit.hash.as_str()),
    ];
    let newest = numbered.newest_by_kind();
    let newest = serde_json::to_string(&newest).expect("a map of numbers serialises");
    let head = columns![
        head.event_seq,
        head.audit_seq,
        head.audit_hash.as_str(),
        newest,
        head.archived.seq,
        head.archived.hash.as_str(),
    ];
    futures::try_join!(
        run(client, &sql.events_insert, events.len(), event_columns),
        run(client, &sql.audit_insert, audit.len(), audit_columns),
        run(client, &sql.head_update, 1, head),
    )?;
    Ok(())
}
