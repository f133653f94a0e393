//! Group commit: collects waiting changes, decides them together, writes them in one
//! transaction.
//!
//! How events stay in order although commits overlap: a batch takes the lock on the
//! one row of `meta` last, when all else is written, numbers its events and audit entries from
//! it, and holds it until the commit. So numbers are given in the order in which commits become
//! visible: a reader that sees an event sees every event with a smaller number. There are few batches,
//! each holds the lock for one round trip and the commit, and no waiter holds a lock that the
//! holder needs.

use std::sync::Arc;
use std::time::Instant;

use deadpool_postgres::{Object as Pooled, Pool};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::Error as PgError;
use tokio_postgres::error::SqlState;

use super::listen::{CHANNEL, Note};
use super::statements::Statements;
use super::{connection, failed, load, save};
use crate::admission::{Clocks, NumberedLogs, RowSet};
use crate::change::{Change, Verdict};
use crate::error::chain;
use crate::log::LogHeads;
use crate::store::sql::{self, Row as _};
use crate::store::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX, OnCommit, Wakeups};
use crate::{Class, Error, Result, Timestamp};

/// How often a batch that collided with another replica's is retried.
const TRIES: usize = 10;

pub struct Waiting {
    pub changes: Vec<Change>,
    pub now: Timestamp,
    pub reply: oneshot::Sender<Result<Vec<Verdict>>>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.changes.iter().map(Change::bytes).sum()
    }
}

pub async fn run(
    pool: Pool,
    waiting: Arc<Mutex<mpsc::Receiver<Waiting>>>,
    wakeups: Arc<Wakeups>,
    on_commit: OnCommit,
) {
    loop {
        let (mut batch, mut changes, mut bytes) = (Vec::new(), 0, 0);
        {
            let mut waiting = waiting.lock().await;
            let Some(first) = waiting.recv().await else { return };
            changes += first.changes.len();
            bytes += first.bytes();
            batch.push(first);
            coalesce(&waiting).await;
            while changes < BATCH_CHANGES_MAX
                && bytes < BATCH_BYTES_MAX
                && let Ok(next) = waiting.try_recv()
            {
                changes += next.changes.len();
                bytes += next.bytes();
                batch.push(next);
            }
        }
        let begun = Instant::now();
        commit_batch(&pool, batch, &wakeups).await;
        on_commit(changes, begun.elapsed());
    }
}

/// Callers whose batch completed come back together: yields so that they can enqueue.
async fn coalesce(waiting: &mpsc::Receiver<Waiting>) {
    const ROUNDS_MAX: usize = 4;
    for _ in 0..ROUNDS_MAX {
        let before = waiting.len();
        tokio::task::yield_now().await;
        if waiting.len() == before {
            return;
        }
    }
}

async fn commit_batch(pool: &Pool, batch: Vec<Waiting>, wakeups: &Wakeups) {
    match with_retries(pool, &batch).await {
        Ok((verdicts, head, woke)) => {
            // The next batch starts while the replies are sent.
            wakeups.notify_event(head.event_seq);
            for (waiting, verdicts) in batch.into_iter().zip(verdicts) {
                let _ = waiting.reply.send(Ok(verdicts));
            }
            if woke {
                wakeups.notify_work();
            }
        }
        // One change cannot be written: the others are committed without it.
        Err(error) if error.class() == Class::Terminal && batch.len() > 1 => {
            for waiting in batch {
                Box::pin(commit_batch(pool, vec![waiting], wakeups)).await;
            }
        }
        Err(error) => {
            tracing::error!(%error, "commit failed");
            let text = error.to_string();
            for waiting in batch {
                let _ = waiting.reply.send(Err(match error.class() {
                    Class::Terminal => Error::internal("the store", text.clone()),
                    _ => Error::unavailable("the store", text.clone()),
                }));
            }
        }
    }
}

/// Text that PostgreSQL cannot store, or a value beyond its limits: a retry would fail too.
fn unwritable(error: &PgError) -> bool {
    error.code().is_some_and(|state| ["22", "54"].iter().any(|c| state.code().starts_with(c)))
}

/// Another replica created the row between our read and our write, or a deadlock: retry.
fn collided(error: &PgError) -> bool {
    [
        SqlState::UNIQUE_VIOLATION,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ]
    .iter()
    .any(|state| error.code() == Some(state))
}

async fn with_retries(
    pool: &Pool,
    batch: &[Waiting],
) -> Result<(Vec<Vec<Verdict>>, LogHeads, bool)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let client = connection(pool).await?;
        match transact(&client, batch).await {
            Ok(done) => return Ok(done),
            Err(error) => {
                let again = collided(&error) && tries < TRIES;
                if error.is_closed() || client.batch_execute("ROLLBACK").await.is_err() {
                    // The connection's state is unknown: it does not go back to the pool.
                    drop(Pooled::take(client));
                }
                if !again && unwritable(&error) {
                    return Err(Error::internal(format!("the store ({})", chain(&error)), error));
                }
                if !again {
                    return Err(failed(error));
                }
            }
        }
    }
}

async fn transact(
    client: &Pooled,
    batch: &[Waiting],
) -> Result<(Vec<Vec<Verdict>>, LogHeads, bool), PgError> {
    let statements = &Statements::of(client).await?;
    let mut touched = RowSet::default();
    batch.iter().for_each(|waiting| touched.add(&waiting.changes));
    let (_, clock, mut rows) = futures::try_join!(
        client.batch_execute("BEGIN"),
        client.query_one(&statements.clock, &[]),
        load::rows(client, statements, &touched)
    )?;
    let store = clock.time(0)?;
    let mut verdicts: Vec<Vec<Verdict>> = batch
        .iter()
        .map(|waiting| rows.admit(&waiting.changes, Clocks { caller: waiting.now, store }))
        .collect();
    let now = batch.iter().map(|waiting| waiting.now).max().unwrap_or_default();
    let locked = client.query_one(&statements.head_lock, &[]);
    let (_, row) = futures::try_join!(save::rows(client, statements, &rows, now), locked)?;
    let mut head = sql::log_heads(&row)?;
    let mut numbered = NumberedLogs::default();
    for (waiting, verdicts) in batch.iter().zip(&mut verdicts) {
        numbered.add(&waiting.changes, verdicts, &mut head, waiting.now);
    }
    let woke = rows.woke();
    let note = Note { event_seq: head.event_seq, woke };
    let commit = format!("NOTIFY {CHANNEL}, '{note}'; COMMIT");
    futures::try_join!(
        save::logs(client, statements, &numbered, &head),
        client.batch_execute(&commit)
    )?;
    Ok((verdicts, head, woke))
}
