//! The writer thread. It takes all waiting requests, executes them in one transaction, and replies
//! when that is durable (group commit): the more callers, the larger the batches.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::cache::Cache;
use super::checkpoint::Checkpointer;
use super::log_index::{self, IndexedUpTo};
use super::{failed, load, save, what_failed};
use crate::admission::{Clocks, Lease, NumberedLogs, RowSet, take_lease};
use crate::change::{Change, Verdict};
use crate::log::LogHeads;
use crate::queue::FairnessCursor;
use crate::store::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX, NewestByKind, OnCommit, Wakeups};
use crate::{Ambient, Error, Key, Result, Timestamp};

type Reply<T> = oneshot::Sender<Result<T>>;

pub enum Op {
    Commit(Commit),
    Task {
        /// The share of a batch that it uses.
        cost: usize,
        /// Acknowledged writes are synced. A claim need not be: its holder ends with this process,
        /// and the fence skips ahead at the next start.
        sync: bool,
        task: Box<dyn AnyTask>,
    },
}

/// The changes of one caller.
pub struct Commit {
    pub changes: Vec<Change>,
    pub now: Timestamp,
    pub reply: Reply<Vec<Verdict>>,
}

/// Other work in the writer's transaction, and where its result goes.
pub struct Task<T, W> {
    pub work: W,
    pub reply: Reply<T>,
    pub result: Option<T>,
}

pub trait AnyTask: Send {
    fn run(&mut self, session: &mut Session<'_>) -> rusqlite::Result<()>;

    /// Called once the transaction is durable, or with the error if it failed.
    fn reply(self: Box<Self>, failed: Option<Error>);
}

impl<T: Send, W> AnyTask for Task<T, W>
where
    W: FnMut(&mut Session<'_>) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, session: &mut Session<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.work)(session)?);
        Ok(())
    }

    fn reply(self: Box<Self>, failed: Option<Error>) {
        let Task { reply, result, .. } = *self;
        let done = || result.expect("a transaction that succeeded ran all tasks");
        let _ = reply.send(failed.map_or_else(|| Ok(done()), Err));
    }
}

/// What a task works with.
pub struct Session<'a> {
    pub connection: &'a Connection,
    pub now: Timestamp,
    pub fence: &'a mut i64,
    pub fairness: &'a mut FairnessCursor,
    /// Objects that the cache must forget.
    pub written: Vec<Key>,
}

pub struct Writer {
    connection: Connection,
    checkpointer: Checkpointer,
    _lock: File,
    cache: Arc<Cache>,
    wakeups: Arc<Wakeups>,
    newest: Arc<RwLock<NewestByKind>>,
    clock: Ambient,
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
        kinds: Arc<RwLock<NewestByKind>>,
        clock: Ambient,
        on_commit: OnCommit,
    ) -> Result<Writer> {
        let (head, fence) = heads(&connection).map_err(failed)?;
        let indexed = log_index::indexed(&connection).map_err(failed)?;
        wakeups.notify_event(head.event_seq);
        *kinds.write() = newest_by_kind(&connection).map_err(failed)?;
        Ok(Writer {
            newest: kinds,
            connection,
            checkpointer,
            _lock: lock,
            cache,
            wakeups,
            clock,
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
            let mut batch = Batch::default();
            batch.add(first);
            while batch.cost < BATCH_CHANGES_MAX
                && batch.bytes < BATCH_BYTES_MAX
                && let Ok(op) = waiting.try_recv()
            {
                batch.add(op);
            }
            last = batch.commits.len() + batch.tasks.len();
            let changes = batch.commits.iter().map(|commit| commit.changes.len()).sum();
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

    fn run_batch(&mut self, mut batch: Batch) {
        let (head, fence) = (self.head.clone(), self.fence);
        let (verdicts, failed) = match self.transact(&mut batch) {
            Ok(verdicts) => (verdicts, None),
            Err(error) => {
                tracing::error!(%error, "commit failed");
                (self.head, self.fence) = (head, fence);
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
                    self.make_room();
                }
                (Vec::new(), Some(what_failed(&error)))
            }
        };
        let failed = || {
            failed.as_ref().map(|what| Error::unavailable(format!("the store ({what})"), &**what))
        };
        let mut verdicts = verdicts.into_iter();
        for commit in batch.commits {
            let verdicts = verdicts.next().unwrap_or_default();
            let _ = commit.reply.send(failed().map_or(Ok(verdicts), Err));
        }
        for task in batch.tasks {
            task.reply(failed());
        }
    }

    /// Checkpoints and truncates the write-ahead log, which may be what fills the disk. Best effort:
    /// the next batch shows whether it helped.
    fn make_room(&self) {
        let cut = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        tracing::info!(worked = cut.is_ok(), "disk full; truncated the write-ahead log");
    }

    fn set_sync(&mut self, sync: bool) -> rusqlite::Result<()> {
        if sync != self.synced {
            let level = if sync { "full" } else { "normal" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.synced = sync;
        }
        Ok(())
    }

    fn transact(&mut self, batch: &mut Batch) -> rusqlite::Result<Vec<Vec<Verdict>>> {
        self.set_sync(batch.sync)?;
        let now = self.clock.now();
        let Writer { connection, head, fence, fairness, wakeups, cache, newest, .. } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (verdicts, effects) = decide(&transaction, &batch.commits, head, now)?;
        let Effects { woke, written, kinds } = effects;
        let mut session = Session { connection: &transaction, now, fence, fairness, written };
        for task in &mut batch.tasks {
            task.run(&mut session)?;
        }
        let writing = cache.invalidate(session.written);
        let committed = transaction.commit();
        drop(writing);
        committed?;
        // Before the replies: a caller whose commit was acknowledged finds its events.
        let mut newest = newest.write();
        for (kind, seq) in kinds {
            match newest.get_mut(kind.as_str()) {
                Some(known) => *known = seq,
                None => drop(newest.insert(kind, seq)),
            }
        }
        drop(newest);
        wakeups.notify_event(head.event_seq);
        if woke {
            wakeups.notify_work();
        }
        Ok(verdicts)
    }
}

/// The requests of one transaction.
#[derive(Default)]
struct Batch {
    commits: Vec<Commit>,
    tasks: Vec<Box<dyn AnyTask>>,
    cost: usize,
    bytes: usize,
    sync: bool,
}

impl Batch {
    fn add(&mut self, op: Op) {
        match op {
            Op::Commit(commit) => {
                self.cost += commit.changes.len().max(1);
                self.bytes += commit.changes.iter().map(Change::bytes).sum::<usize>();
                self.sync = true;
                self.commits.push(commit);
            }
            Op::Task { cost, sync, task } => {
                self.cost += cost;
                self.sync |= sync;
                self.tasks.push(task);
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

fn newest_by_kind(connection: &Connection) -> rusqlite::Result<NewestByKind> {
    let mut statement = connection.prepare(log_index::NEWEST_BY_KIND)?;
    // Those after the index come last, so that they win.
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
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

/// What the cache and the driver have to know of a batch.
#[derive(Default)]
struct Effects {
    woke: bool,
    written: Vec<Key>,
    /// The newest event of each kind that has one.
    kinds: NewestByKind,
}

/// Decides all changes of all callers against one set of rows.
fn decide(
    connection: &Connection,
    commits: &[Commit],
    head: &mut LogHeads,
    store_now: Timestamp,
) -> rusqlite::Result<(Vec<Vec<Verdict>>, Effects)> {
    let Some(now) = commits.iter().map(|commit| commit.now).max() else {
        return Ok(Default::default());
    };
    let mut touched = RowSet::default();
    commits.iter().for_each(|commit| touched.add(&commit.changes));
    let mut rows = load::rows(connection, &touched)?;
    let mut numbered = NumberedLogs::default();
    let mut all = Vec::with_capacity(commits.len());
    for Commit { changes, now, .. } in commits {
        let mut verdicts = rows.admit(changes, Clocks { caller: *now, store: store_now });
        numbered.add(changes, &mut verdicts, head, *now);
        all.push(verdicts);
    }
    save::rows(connection, &rows, now)?;
    save::logs(connection, &numbered, head)?;
    let woke = rows.woke();
    let kinds = numbered.newest_by_kind();
    Ok((all, Effects { woke, written: rows.writes.into_keys().collect(), kinds }))
}

pub fn lease(
    Session { connection, now, .. }: &Session<'_>,
    name: &str,
    holder: &str,
    ttl: Duration,
) -> rusqlite::Result<Option<Lease>> {
    let next = take_lease(load::lease(connection, name)?.as_ref(), holder, *now, ttl);
    if let Some(lease) = &next {
        save::execute(
            connection,
            "INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4)",
            params![name, lease.holder, lease.fence, lease.until.millis()],
        )?;
    }
    Ok(next)
}
