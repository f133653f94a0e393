//! The writer thread. It takes all waiting requests, executes them in one transaction, and replies
//! when that is durable (group commit): the more callers, the larger the batches.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::cache::Cache;
use super::checkpoint::Checkpointer;
use super::claim::FairnessCursor;
use super::log_index::{self, IndexedUpTo};
use super::{claim, failed, load, save, what_failed};
use crate::admission::{BatchState, Lease, NumberedLogs, RowSet, take_lease};
use crate::change::{Change, Verdict};
use crate::log::LogHeads;
use crate::queue::{ClaimBatch, ClaimRequest};
use crate::store::{OnCommit, Wakeups};
use crate::{Error, Key, Result, Timestamp};

/// The most changes per transaction, so that a commit stays short.
const BATCH_CHANGES_MAX: usize = 512;

type Reply<T> = oneshot::Sender<Result<T>>;

pub enum Op {
    Commit {
        changes: Vec<Change>,
        now: Timestamp,
        reply: Reply<Vec<Verdict>>,
    },
    Claim {
        ask: ClaimRequest,
        reply: Reply<ClaimBatch>,
    },
    Lease {
        name: String,
        holder: String,
        now: Timestamp,
        until: Timestamp,
        reply: Reply<Option<Lease>>,
    },
    Unlease {
        name: String,
        fence: i64,
        reply: Reply<()>,
    },
    Purge {
        events_before: Timestamp,
        commands_before: Timestamp,
        limit: usize,
        reply: Reply<usize>,
    },
    Ping {
        reply: Reply<()>,
    },
}

/// Sends the reply once the transaction is durable, or the error if it failed.
type Completion = Box<dyn FnOnce(Option<Error>) + Send>;

pub struct Writer {
    connection: Connection,
    checkpointer: Checkpointer,
    _lock: File,
    cache: Arc<Cache>,
    wakeups: Arc<Wakeups>,
    on_commit: OnCommit,
    head: LogHeads,
    fence: i64,
    fairness: FairnessCursor,
    synced: bool,
    indexed: IndexedUpTo,
}

impl Writer {
    pub fn new(
        (connection, checkpointer, lock): (Connection, Checkpointer, File),
        cache: Arc<Cache>,
        wakeups: Arc<Wakeups>,
        on_commit: OnCommit,
    ) -> Result<Writer> {
        let (head, fence) = heads(&connection).map_err(failed)?;
        let indexed = log_index::indexed(&connection).map_err(failed)?;
        wakeups.notify_event(head.event_seq);
        Ok(Writer {
            connection,
            checkpointer,
            _lock: lock,
            cache,
            wakeups,
            on_commit,
            head,
            fence,
            fairness: FairnessCursor::default(),
            synced: true,
            indexed,
        })
    }

    /// Runs until all senders are dropped.
    pub fn run(mut self, mut waiting: mpsc::Receiver<Op>) {
        let mut last = 1;
        while let Some(first) = waiting.blocking_recv() {
            coalesce(&waiting, last);
            let mut batch = vec![first];
            let mut cost = batch_cost(&batch[0]);
            while cost < BATCH_CHANGES_MAX
                && let Ok(op) = waiting.try_recv()
            {
                cost += batch_cost(&op);
                batch.push(op);
            }
            last = batch.len();
            let changes = batch.iter().map(changes).sum();
            let begun = Instant::now();
            self.run_batch(batch);
            if changes > 0 {
                (self.on_commit)(changes, begun.elapsed());
            }
            self.checkpointer.after_commit(&self.connection);
            if let Err(error) =
                log_index::merge_tail(&mut self.connection, &self.head, &mut self.indexed)
            {
                tracing::warn!(%error, "updating the log indexes failed");
            }
        }
    }

    fn run_batch(&mut self, batch: Vec<Op>) {
        let (head, fence) = (self.head.clone(), self.fence);
        let mut completions = Vec::with_capacity(batch.len());
        let result = self.transact(batch, &mut completions);
        if let Err(error) = &result {
            tracing::error!(%error, "commit failed");
            (self.head, self.fence) = (head, fence);
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
                self.make_room();
            }
        }
        let what = result.err().map(|error| what_failed(&error));
        for complete in completions {
            complete(
                what.as_ref()
                    .map(|what| Error::unavailable(format!("the store ({what})"), what.clone())),
            );
        }
    }

    /// Checkpoints and truncates the write-ahead log, which may be what fills the disk. Best effort:
    /// the next batch shows whether it helped.
    fn make_room(&self) {
        let cut = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        tracing::info!(worked = cut.is_ok(), "disk full; truncated the write-ahead log");
    }

    /// Acknowledged writes are synced. A claim need not be: its holder ends with this process, and
    /// the fence skips ahead at the next start.
    fn sync_for(&mut self, batch: &[Op]) -> rusqlite::Result<()> {
        let sync = batch.iter().any(|op| !matches!(op, Op::Claim { .. } | Op::Ping { .. }));
        if sync != self.synced {
            let level = if sync { "full" } else { "normal" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.synced = sync;
        }
        Ok(())
    }

    /// Every op of the batch leaves a completion, also when the transaction fails.
    fn transact(
        &mut self,
        batch: Vec<Op>,
        completions: &mut Vec<Completion>,
    ) -> rusqlite::Result<()> {
        if let Err(error) = self.sync_for(&batch) {
            batch.into_iter().for_each(|op| completions.push(refuse(op)));
            return Err(error);
        }
        let Writer { connection, head, fence, fairness, wakeups, cache, .. } = self;
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = match begun {
            Ok(transaction) => transaction,
            Err(error) => {
                batch.into_iter().for_each(|op| completions.push(refuse(op)));
                return Err(error);
            }
        };
        let (commits, others): (Vec<Op>, Vec<Op>) =
            batch.into_iter().partition(|op| matches!(op, Op::Commit { .. }));
        let mut effects = Effects::default();
        let mut failure = commit_ops(&transaction, commits, head, completions, &mut effects).err();
        for op in others {
            if failure.is_some() {
                completions.push(refuse(op));
                continue;
            }
            failure = other_op(&transaction, op, fence, fairness, completions).err();
        }
        match failure {
            Some(error) => Err(error),
            None => {
                let writing = cache.invalidate(effects.written);
                let committed = transaction.commit();
                drop(writing);
                committed?;
                // Before the replies: a caller whose commit was acknowledged finds its events.
                wakeups.notify_event(head.event_seq);
                if effects.woke {
                    wakeups.notify_work();
                }
                Ok(())
            }
        }
    }
}

/// More than the claims that a power failure can lose: those are not synced.
const FENCE_SKIP: i64 = 1 << 32;

fn heads(connection: &Connection) -> rusqlite::Result<(LogHeads, i64)> {
    let fence: i64 = connection.query_row("SELECT fence FROM meta", [], |row| row.get(0))?;
    Ok((load::head(connection)?, fence + FENCE_SKIP))
}

/// Callers whose batch completed come back together, but one is always first. Waits for the others,
/// much shorter than a commit takes. A single caller does not wait.
fn coalesce(waiting: &mpsc::Receiver<Op>, last: usize) {
    const COALESCE_SLEEP: Duration = Duration::from_micros(40);
    let mut before = 0;
    for _ in 0..COALESCE_ROUNDS_MAX {
        let there = waiting.len() + 1;
        if there >= last || there == before {
            return;
        }
        before = there;
        std::thread::sleep(COALESCE_SLEEP);
    }
}

/// The most waits per batch.
const COALESCE_ROUNDS_MAX: usize = 5;

/// The share of a batch that an op uses.
fn batch_cost(op: &Op) -> usize {
    match op {
        Op::Claim { ask, .. } => ask.slots,
        _ => changes(op).max(1),
    }
}

fn changes(op: &Op) -> usize {
    match op {
        Op::Commit { changes, .. } => changes.len(),
        _ => 0,
    }
}

fn complete<T: Send + 'static>(reply: Reply<T>, value: T) -> Completion {
    Box::new(move |error| drop(reply.send(error.map_or(Ok(value), Err))))
}

/// The completion of an op that was not executed because the batch failed before it.
fn refuse(op: Op) -> Completion {
    match op {
        Op::Commit { reply, .. } => complete(reply, Vec::new()),
        Op::Claim { reply, .. } => complete(reply, ClaimBatch::default()),
        Op::Lease { reply, .. } => complete(reply, None),
        Op::Unlease { reply, .. } | Op::Ping { reply } => complete(reply, ()),
        Op::Purge { reply, .. } => complete(reply, 0),
    }
}

/// What the cache and the driver have to know of a batch.
#[derive(Default)]
struct Effects {
    woke: bool,
    written: Vec<Key>,
}

/// Decides all changes of all callers against one set of rows.
fn commit_ops(
    connection: &Connection,
    ops: Vec<Op>,
    head: &mut LogHeads,
    completions: &mut Vec<Completion>,
    effects: &mut Effects,
) -> rusqlite::Result<()> {
    let mut groups = Vec::with_capacity(ops.len());
    for op in ops {
        if let Op::Commit { changes, now, reply } = op {
            groups.push((changes, now, reply));
        }
    }
    let result = decide(connection, &groups, head, effects);
    let (verdicts, result) = match result {
        Ok(verdicts) => (verdicts, Ok(())),
        Err(error) => (groups.iter().map(|_| Vec::new()).collect(), Err(error)),
    };
    completions.extend(
        groups.into_iter().zip(verdicts).map(|((_, _, reply), verdicts)| complete(reply, verdicts)),
    );
    result
}

type Group = (Vec<Change>, Timestamp, Reply<Vec<Verdict>>);

fn decide(
    connection: &Connection,
    groups: &[Group],
    head: &mut LogHeads,
    effects: &mut Effects,
) -> rusqlite::Result<Vec<Vec<Verdict>>> {
    let Some(now) = groups.iter().map(|(_, now, _)| *now).max() else { return Ok(Vec::new()) };
    let mut touched = RowSet::default();
    groups.iter().for_each(|(changes, _, _)| touched.add(changes));
    let mut rows = load::rows(connection, &touched)?;
    let mut numbered = NumberedLogs::default();
    let mut all = Vec::with_capacity(groups.len());
    for (changes, now, _) in groups {
        let mut verdicts = rows.admit(changes, *now);
        let more = BatchState::number_logs(changes, &mut verdicts, head, *now);
        numbered.events.extend(more.events);
        numbered.audit.extend(more.audit);
        all.push(verdicts);
    }
    save::rows(connection, &rows, now)?;
    save::logs(connection, &numbered, head)?;
    effects.woke = rows.woke();
    effects.written = rows.writes.into_keys().collect();
    Ok(all)
}

fn other_op(
    connection: &Connection,
    op: Op,
    fence: &mut i64,
    fairness: &mut FairnessCursor,
    completions: &mut Vec<Completion>,
) -> rusqlite::Result<()> {
    fn finish<T: Default + Send + 'static>(
        completions: &mut Vec<Completion>,
        reply: Reply<T>,
        result: rusqlite::Result<T>,
    ) -> rusqlite::Result<()> {
        let (value, result) = match result {
            Ok(value) => (value, Ok(())),
            Err(error) => (T::default(), Err(error)),
        };
        completions.push(complete(reply, value));
        result
    }
    match op {
        Op::Claim { ask, reply } => {
            finish(completions, reply, claim::claim(connection, &ask, fairness, fence))
        }
        Op::Lease { name, holder, now, until, reply } => {
            finish(completions, reply, lease(connection, &name, &holder, now, until))
        }
        Op::Unlease { name, fence, reply } => {
            finish(completions, reply, unlease(connection, &name, fence))
        }
        Op::Purge { events_before, commands_before, limit, reply } => {
            finish(completions, reply, purge(connection, events_before, commands_before, limit))
        }
        Op::Ping { reply } => finish(completions, reply, ping(connection)),
        Op::Commit { reply, .. } => finish(completions, reply, Ok(Vec::new())),
    }
}

fn lease(
    connection: &Connection,
    name: &str,
    holder: &str,
    now: Timestamp,
    until: Timestamp,
) -> rusqlite::Result<Option<Lease>> {
    let next = take_lease(load::lease(connection, name)?.as_ref(), holder, now, until);
    if let Some(lease) = &next {
        connection
            .prepare_cached("INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![name, lease.holder, lease.fence, lease.until.millis()])?;
    }
    Ok(next)
}

fn unlease(connection: &Connection, name: &str, fence: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE leases SET until = 0 WHERE name = ?1 AND fence = ?2")?
        .execute(params![name, fence])?;
    Ok(())
}

/// Keeps the newest event, so that the log never looks empty to a reader that is up to date. Events
/// before an old one are old too, whatever the clock said: there are no gaps.
fn purge(
    connection: &Connection,
    events_before: Timestamp,
    commands_before: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let limit = limit as i64;
    const OLD: &str = "seq <= (
            SELECT max(seq) FROM (SELECT seq, at FROM events ORDER BY seq LIMIT ?2) WHERE at < ?1)
        AND seq < (SELECT event_seq FROM meta)";
    let old = params![events_before.millis(), limit];
    let index = format!(
        "DELETE FROM events_subject WHERE (subject, seq) IN (SELECT subject, seq FROM events WHERE {OLD})"
    );
    connection.prepare_cached(&index)?.execute(old)?;
    let events =
        connection.prepare_cached(&format!("DELETE FROM events WHERE {OLD}"))?.execute(old)?;
    let commands = connection
        .prepare_cached(
            "DELETE FROM commands WHERE id IN (SELECT id FROM commands WHERE at < ?1 LIMIT ?2)",
        )?
        .execute(params![commands_before.millis(), limit])?;
    Ok(events + commands)
}

fn ping(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE meta SET fence = fence")?.execute([])?;
    Ok(())
}
