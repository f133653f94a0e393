//! The one thread that writes. It takes whatever waits, carries it out in one transaction, and
//! answers when that is on disk: the more callers, the larger the groups.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::cache::Cache;
use super::checkpoint::Checkpoints;
use super::claim::Turn;
use super::runs::{self, Indexed};
use super::{claim, failed, load, save, what_failed};
use crate::admit::{Lease, Rows, Sealed, Touched, take_lease};
use crate::change::{Change, Verdict};
use crate::log::Head;
use crate::queue::{Ask, Claimed};
use crate::store::{Hints, OnCommit};
use crate::{Error, Key, Result, Timestamp};

/// Changes in one transaction at the most, so that a commit stays short.
const BATCH_CHANGES_MAX: usize = 512;

type Reply<T> = oneshot::Sender<Result<T>>;

pub enum Op {
    Commit {
        changes: Vec<Change>,
        now: Timestamp,
        reply: Reply<Vec<Verdict>>,
    },
    Claim {
        ask: Ask,
        reply: Reply<Claimed>,
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
    Forget {
        events_before: Timestamp,
        commands_before: Timestamp,
        limit: usize,
        reply: Reply<usize>,
    },
    Ping {
        reply: Reply<()>,
    },
}

/// Sends an answer once the transaction is durable, or the error if it is not.
type Answer = Box<dyn FnOnce(Option<Error>) + Send>;

pub struct Writer {
    connection: Connection,
    checkpoints: Checkpoints,
    _lock: File,
    cache: Arc<Cache>,
    hints: Arc<Hints>,
    on_commit: OnCommit,
    head: Head,
    fence: i64,
    turn: Turn,
    synced: bool,
    indexed: Indexed,
}

impl Writer {
    pub fn new(
        (connection, checkpoints, lock): (Connection, Checkpoints, File),
        cache: Arc<Cache>,
        hints: Arc<Hints>,
        on_commit: OnCommit,
    ) -> Result<Writer> {
        let (head, fence) = heads(&connection).map_err(failed)?;
        let indexed = runs::indexed(&connection).map_err(failed)?;
        hints.hint_event(head.event_seq);
        Ok(Writer {
            connection,
            checkpoints,
            _lock: lock,
            cache,
            hints,
            on_commit,
            head,
            fence,
            turn: Turn::default(),
            synced: true,
            indexed,
        })
    }

    /// Until nobody can ask any more.
    pub fn run(mut self, mut waiting: mpsc::Receiver<Op>) {
        let mut last = 1;
        while let Some(first) = waiting.blocking_recv() {
            gather(&waiting, last);
            let mut batch = vec![first];
            let mut heft = weight(&batch[0]);
            while heft < BATCH_CHANGES_MAX
                && let Ok(op) = waiting.try_recv()
            {
                heft += weight(&op);
                batch.push(op);
            }
            last = batch.len();
            let changes = batch.iter().map(changes).sum();
            let begun = Instant::now();
            self.carry_out(batch);
            if changes > 0 {
                (self.on_commit)(changes, begun.elapsed());
            }
            self.checkpoints.after_commit(&self.connection);
            if let Err(error) = runs::merge(&mut self.connection, &self.head, &mut self.indexed) {
                tracing::warn!(%error, "the logs' indexes could not be brought up to date");
            }
        }
    }

    fn carry_out(&mut self, batch: Vec<Op>) {
        let (head, fence) = (self.head.clone(), self.fence);
        let mut answers = Vec::with_capacity(batch.len());
        let result = self.transact(batch, &mut answers);
        if let Err(error) = &result {
            tracing::error!(%error, "the store could not write");
            (self.head, self.fence) = (head, fence);
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
                self.make_room();
            }
        }
        let what = result.err().map(|error| what_failed(&error));
        for answer in answers {
            answer(
                what.as_ref()
                    .map(|what| Error::unavailable(format!("the store ({what})"), what.clone())),
            );
        }
    }

    /// The write-ahead log may be what fills the disk: what it holds goes to its place, and it is
    /// cut. Does what it can; the next batch will tell.
    fn make_room(&self) {
        let cut = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        tracing::info!(worked = cut.is_ok(), "cut the write-ahead log to make room");
    }

    /// What callers are told must be on disk. A claim need not be: whoever holds it ends with this
    /// process, and the fence skips ahead at the next start.
    fn sync_for(&mut self, batch: &[Op]) -> rusqlite::Result<()> {
        let sync = batch.iter().any(|op| !matches!(op, Op::Claim { .. } | Op::Ping { .. }));
        if sync != self.synced {
            let level = if sync { "full" } else { "normal" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.synced = sync;
        }
        Ok(())
    }

    /// Every op of the batch leaves an answer behind, also when the transaction fails.
    fn transact(&mut self, batch: Vec<Op>, answers: &mut Vec<Answer>) -> rusqlite::Result<()> {
        if let Err(error) = self.sync_for(&batch) {
            batch.into_iter().for_each(|op| answers.push(refuse(op)));
            return Err(error);
        }
        let Writer { connection, head, fence, turn, hints, cache, .. } = self;
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = match begun {
            Ok(transaction) => transaction,
            Err(error) => {
                batch.into_iter().for_each(|op| answers.push(refuse(op)));
                return Err(error);
            }
        };
        let (commits, others): (Vec<Op>, Vec<Op>) =
            batch.into_iter().partition(|op| matches!(op, Op::Commit { .. }));
        let mut effects = Effects::default();
        let mut failure = commit_ops(&transaction, commits, head, answers, &mut effects).err();
        for op in others {
            if failure.is_some() {
                answers.push(refuse(op));
                continue;
            }
            failure = other_op(&transaction, op, fence, turn, answers).err();
        }
        match failure {
            Some(error) => Err(error),
            None => {
                let writing = cache.writing(effects.written);
                let committed = transaction.commit();
                drop(writing);
                committed?;
                // Before anyone is answered: whoever was told of a commit finds its events.
                hints.hint_event(head.event_seq);
                if effects.woke {
                    hints.hint_work();
                }
                Ok(())
            }
        }
    }
}

/// More claims than can be lost with the power: they are not synced.
const FENCE_SKIP: i64 = 1 << 32;

fn heads(connection: &Connection) -> rusqlite::Result<(Head, i64)> {
    let fence: i64 = connection.query_row("SELECT fence FROM meta", [], |row| row.get(0))?;
    Ok((load::head(connection)?, fence + FENCE_SKIP))
}

/// Callers that were answered together come back together, but one is always the first: lets the
/// others catch up, for a moment that is short beside a commit. A lone caller does not wait.
fn gather(waiting: &mpsc::Receiver<Op>, last: usize) {
    const NAP: Duration = Duration::from_micros(40);
    let mut before = 0;
    for _ in 0..NAPS_MAX {
        let there = waiting.len() + 1;
        if there >= last || there == before {
            return;
        }
        before = there;
        std::thread::sleep(NAP);
    }
}

/// How often a batch waits for more to come.
const NAPS_MAX: usize = 5;

/// How much of a batch an op takes up.
fn weight(op: &Op) -> usize {
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

fn answer<T: Send + 'static>(reply: Reply<T>, value: T) -> Answer {
    Box::new(move |error| drop(reply.send(error.map_or(Ok(value), Err))))
}

/// An answer for an op that was not carried out because the batch failed before it.
fn refuse(op: Op) -> Answer {
    match op {
        Op::Commit { reply, .. } => answer(reply, Vec::new()),
        Op::Claim { reply, .. } => answer(reply, Claimed::default()),
        Op::Lease { reply, .. } => answer(reply, None),
        Op::Unlease { reply, .. } | Op::Ping { reply } => answer(reply, ()),
        Op::Forget { reply, .. } => answer(reply, 0),
    }
}

/// What others have to know of a batch.
#[derive(Default)]
struct Effects {
    woke: bool,
    written: Vec<Key>,
}

/// All changes of all callers are decided against one set of rows.
fn commit_ops(
    connection: &Connection,
    ops: Vec<Op>,
    head: &mut Head,
    answers: &mut Vec<Answer>,
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
    answers.extend(
        groups.into_iter().zip(verdicts).map(|((_, _, reply), verdicts)| answer(reply, verdicts)),
    );
    result
}

type Group = (Vec<Change>, Timestamp, Reply<Vec<Verdict>>);

fn decide(
    connection: &Connection,
    groups: &[Group],
    head: &mut Head,
    effects: &mut Effects,
) -> rusqlite::Result<Vec<Vec<Verdict>>> {
    let Some(now) = groups.iter().map(|(_, now, _)| *now).max() else { return Ok(Vec::new()) };
    let mut touched = Touched::default();
    groups.iter().for_each(|(changes, _, _)| touched.add(changes));
    let mut rows = load::rows(connection, &touched)?;
    let mut sealed = Sealed::default();
    let mut all = Vec::with_capacity(groups.len());
    for (changes, now, _) in groups {
        let mut verdicts = rows.admit(changes, *now);
        let more = Rows::seal(changes, &mut verdicts, head, *now);
        sealed.events.extend(more.events);
        sealed.audit.extend(more.audit);
        all.push(verdicts);
    }
    save::rows(connection, &rows, now)?;
    save::logs(connection, &sealed, head)?;
    effects.woke = rows.woke();
    effects.written = rows.writes.into_keys().collect();
    Ok(all)
}

fn other_op(
    connection: &Connection,
    op: Op,
    fence: &mut i64,
    turn: &mut Turn,
    answers: &mut Vec<Answer>,
) -> rusqlite::Result<()> {
    fn keep<T: Default + Send + 'static>(
        answers: &mut Vec<Answer>,
        reply: Reply<T>,
        result: rusqlite::Result<T>,
    ) -> rusqlite::Result<()> {
        let (value, result) = match result {
            Ok(value) => (value, Ok(())),
            Err(error) => (T::default(), Err(error)),
        };
        answers.push(answer(reply, value));
        result
    }
    match op {
        Op::Claim { ask, reply } => {
            keep(answers, reply, claim::claim(connection, &ask, turn, fence))
        }
        Op::Lease { name, holder, now, until, reply } => {
            keep(answers, reply, lease(connection, &name, &holder, now, until))
        }
        Op::Unlease { name, fence, reply } => {
            keep(answers, reply, unlease(connection, &name, fence))
        }
        Op::Forget { events_before, commands_before, limit, reply } => {
            keep(answers, reply, forget(connection, events_before, commands_before, limit))
        }
        Op::Ping { reply } => keep(answers, reply, ping(connection)),
        Op::Commit { reply, .. } => keep(answers, reply, Ok(Vec::new())),
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

/// The newest event stays, so that the log never looks empty to a reader who is up to date. What
/// came before an old event is old too, whatever the clock said: there are no gaps.
fn forget(
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
