//! Durable transitions per second: object, event, audit entry and queue row, fsync on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kernel::change::{AuditDraft, Wake, Write};
use kernel::store::commit;
use kernel::store::postgres::Postgres;
use kernel::store::sqlite::Sqlite;
use kernel::{Change, Json, Key, Lane, Object, Store, Timestamp};

use crate::figures::{Figures, Target};

const OBJECTS: usize = 4096;
const IN_FLIGHT: usize = 256;
const FOR: Duration = Duration::from_secs(5);
const NOW: Timestamp = Timestamp(1_700_000_000_000);
const FAR: i64 = i64::MAX / 2;

fn object(n: usize) -> Object {
    let key = Key::new("widget", &format!("bench-{n:08}"));
    let mut object = Object::new(
        key,
        &format!("org-{}", n % 50),
        "alice",
        &format!("bench {n}"),
        "accepted",
        NOW,
    );
    object.spec = Json::encode(&serde_json::json!({"size": n, "text": "x".repeat(200)}));
    object.status = Json::encode(&serde_json::json!({"text": "y".repeat(150)}));
    object
}

fn transition(object: Object, due: i64) -> Change {
    Change {
        audit: Some(AuditDraft {
            actor: "bench".into(),
            action: "widget.ready".into(),
            target: object.key.to_string(),
            ..AuditDraft::default()
        }),
        wakes: vec![Wake {
            key: object.key.clone(),
            org: object.org.clone(),
            lane: Lane::Normal,
            due: Timestamp(due),
        }],
        write: Some(Write::transition(object, "ready")),
        ..Change::default()
    }
}

async fn fill(store: &dyn Store) -> anyhow::Result<()> {
    for chunk in (0..OBJECTS).collect::<Vec<_>>().chunks(512) {
        let changes = chunk.iter().map(|n| Change {
            write: Some(Write::create(object(*n), "created")),
            ..transition(object(*n), FAR)
        });
        store.commit_all(changes.collect(), NOW).await?;
    }
    Ok(())
}

/// Each caller moves its own objects on, one transition at a time, and waits for each.
async fn ours(stores: Vec<Arc<dyn Store>>, in_flight: usize) -> anyhow::Result<f64> {
    let (done, due) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI64::new(FAR)));
    let begun = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..in_flight {
        let (store, done, due) = (stores[caller % stores.len()].clone(), done.clone(), due.clone());
        callers.spawn(async move {
            let mut mine: Vec<Object> = (caller..OBJECTS).step_by(in_flight).map(object).collect();
            let keys: Vec<Key> = mine.iter().map(|object| object.key.clone()).collect();
            for (object, stored) in mine.iter_mut().zip(store.get(&keys).await?) {
                object.revision = stored.revision;
            }
            while begun.elapsed() < FOR {
                for object in &mut mine {
                    let change = transition(object.clone(), due.fetch_sub(1, Ordering::Relaxed));
                    let accepted = commit(&*store, change, NOW).await?;
                    object.revision = accepted.revision.unwrap_or_default();
                    done.fetch_add(1, Ordering::Relaxed);
                    if begun.elapsed() >= FOR {
                        break;
                    }
                }
            }
            Ok::<(), kernel::Error>(())
        });
    }
    for result in callers.join_all().await {
        result?;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

pub async fn sqlite(figures: &mut Figures) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let path = dir.path().join("mainstay.db");
    let store: Arc<dyn Store> =
        Arc::new(Sqlite::open(&path, kernel::Ambient::system(), kernel::store::uncounted())?);
    fill(&*store).await?;
    let mut rates = Vec::new();
    for in_flight in [64, IN_FLIGHT, 512] {
        rates.push((in_flight, ours(vec![store.clone()], in_flight).await?));
    }
    drop(store);
    for (in_flight, rate) in rates {
        let bare = bare_sqlite(&path, in_flight)?;
        let name = format!("durable transitions, SQLite, {in_flight} in flight");
        figures.add(&name, rate, "1/s", Some(bare), Target::AtLeastAndShare(30_000.0, 0.5));
    }
    Ok(())
}

/// The statements that the store issues for these transitions, and nothing else.
fn bare_sqlite(path: &std::path::Path, group: usize) -> anyhow::Result<f64> {
    let mut connection = rusqlite::Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
    connection.pragma_update(None, "cache_size", -32_000)?;
    connection.set_prepared_statement_cache_capacity(64);
    let objects: Vec<Object> = (0..OBJECTS).map(object).collect();
    let data: Vec<String> = objects.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let mut seq: i64 = connection.query_row("SELECT event_seq FROM meta", [], |row| row.get(0))?;
    let (hash, mut merged) = ("0".repeat(64), seq);
    let (begun, mut done) = (Instant::now(), 0);
    while begun.elapsed() < FOR {
        let transaction = connection.transaction()?;
        for n in 0..group {
            let at = (done + n) % OBJECTS;
            let (object, key) = (&objects[at], objects[at].key.as_str());
            transaction
                .prepare_cached("SELECT revision FROM objects WHERE key = ?1")?
                .query_row([key], |row| row.get::<_, i64>(0))?;
            transaction
                .prepare_cached("SELECT key, org, lane, state, paused, due, attempt, fence, worker, woken, reason FROM queue WHERE key = ?1")?
                .query_row([key], |row| row.get::<_, String>(0))?;
            transaction
                .prepare_cached("UPDATE objects SET phase = ?2, status = ?3, observed = ?4, revision = ?5, updated_at = ?6 WHERE key = ?1")?
                .execute(rusqlite::params![key, object.phase, object.status.text(), 1, seq, NOW.0])?;
            transaction
                .prepare_cached(
                    "UPDATE queue SET lane = ?2, state = ?3, paused = ?4, due = ?5, attempt = ?6, fence = ?7, worker = ?8, woken = ?9, reason = ?10 WHERE key = ?1",
                )?
                .execute(rusqlite::params![key, 1, 1, false, FAR - seq, 0, 0, "", None::<i64>, ""])?;
            seq += 1;
            transaction
                .prepare_cached("INSERT INTO events (seq, type, subject, org, at, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(rusqlite::params![
                    seq,
                    "mainstay.widget.ready",
                    key,
                    object.org,
                    NOW.0,
                    data[at]
                ])?;
            transaction
                .prepare_cached(
                    "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                )?
                .execute(rusqlite::params![
                    seq,
                    NOW.0,
                    "bench",
                    "widget.ready",
                    key,
                    "",
                    "",
                    "",
                    "",
                    "{}",
                    "{}",
                    hash
                ])?;
        }
        transaction
            .prepare_cached("UPDATE meta SET event_seq = ?1, audit_seq = ?1, audit_hash = ?2")?
            .execute(rusqlite::params![seq, hash])?;
        transaction.commit()?;
        done += group;
        if seq - merged >= 16_384 {
            let transaction = connection.transaction()?;
            for (table, column, index) in
                [("events", "subject", "events_subject"), ("audit", "target", "audit_target")]
            {
                let sql = format!(
                    "INSERT OR IGNORE INTO {index} SELECT {column}, seq FROM {table} WHERE seq > ?1 AND seq <= ?2 ORDER BY {column}, seq"
                );
                transaction.execute(&sql, [merged, seq])?;
            }
            transaction
                .execute("UPDATE meta SET events_indexed = ?1, audit_indexed = ?1", [seq])?;
            transaction.commit()?;
            merged = seq;
        }
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

pub async fn postgres(figures: &mut Figures) -> anyhow::Result<()> {
    let Some(database) = testkit::postgres::Database::create().await else { return Ok(()) };
    let one: Arc<dyn Store> =
        Arc::new(Postgres::open(database.url(), kernel::store::uncounted()).await?);
    let two: Arc<dyn Store> =
        Arc::new(Postgres::open(database.url(), kernel::store::uncounted()).await?);
    fill(&*one).await?;
    let alone = ours(vec![one.clone()], IN_FLIGHT).await?;
    let shared = ours(vec![one, two], IN_FLIGHT).await?;
    let bare = bare_postgres(&database, IN_FLIGHT).await?;
    let target = Target::AtLeast(10_000.0);
    figures.add(
        &format!("durable transitions, PostgreSQL, {IN_FLIGHT} in flight"),
        alone,
        "1/s",
        Some(bare),
        target,
    );
    figures.add(
        &format!("the same, two replicas, {IN_FLIGHT} in flight"),
        shared,
        "1/s",
        Some(bare),
        target,
    );
    Ok(())
}

/// Four set-based statements a group on one connection: the least that such transitions need.
async fn bare_postgres(
    database: &testkit::postgres::Database,
    group: usize,
) -> anyhow::Result<f64> {
    let client = database.client().await;
    let update = client
        .prepare(
            "UPDATE objects SET phase = new.phase, status = new.status::json, revision = revision + 1
             FROM unnest($1::text[], $2::text[], $3::text[]) AS new (key, phase, status) WHERE objects.key = new.key",
        )
        .await?;
    let queue = client
        .prepare("UPDATE queue SET due = new.due FROM unnest($1::text[], $2::bigint[]) AS new (key, due) WHERE queue.key = new.key")
        .await?;
    let events = client
        .prepare("INSERT INTO events (seq, type, subject, org, at, data) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[])")
        .await?;
    let audit = client
        .prepare(
            "INSERT INTO audit SELECT seq, 0, 'bench', 'widget.ready', target, '', '', '', '', '{}', '{}', $3
             FROM unnest($1::bigint[], $2::text[]) AS new (seq, target)",
        )
        .await?;
    let objects: Vec<Object> = (0..OBJECTS).map(object).collect();
    let data: Vec<String> = objects.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let mut seq: i64 = client.query_one("SELECT event_seq FROM meta", &[]).await?.get(0);
    let hash = "0".repeat(64);
    let (begun, mut done) = (Instant::now(), 0);
    while begun.elapsed() < FOR {
        let chosen: Vec<usize> = (0..group).map(|n| (done + n) % OBJECTS).collect();
        let keys: Vec<&str> = chosen.iter().map(|n| objects[*n].key.as_str()).collect();
        let phases: Vec<&str> = chosen.iter().map(|_| "ready").collect();
        let statuses: Vec<&str> = chosen.iter().map(|n| objects[*n].status.text()).collect();
        let seqs: Vec<i64> = (1..=group as i64).map(|n| seq + n).collect();
        let dues: Vec<i64> = seqs.iter().map(|seq| FAR - seq).collect();
        let types: Vec<&str> = chosen.iter().map(|_| "mainstay.widget.ready").collect();
        let orgs: Vec<&str> = chosen.iter().map(|n| objects[*n].org.as_str()).collect();
        let times: Vec<i64> = chosen.iter().map(|_| NOW.0).collect();
        let bodies: Vec<&str> = chosen.iter().map(|n| data[*n].as_str()).collect();
        client.batch_execute("BEGIN").await?;
        client.execute(&update, &[&keys, &phases, &statuses]).await?;
        client.execute(&queue, &[&keys, &dues]).await?;
        client.execute(&events, &[&seqs, &types, &keys, &orgs, &times, &bodies]).await?;
        client.execute(&audit, &[&seqs, &keys, &hash]).await?;
        client.batch_execute("COMMIT").await?;
        seq += group as i64;
        done += group;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}
