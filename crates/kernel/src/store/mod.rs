//! The store: all durable state. [`Store::commit_all`] is the only way to write.

mod commit_health;
pub mod postgres;
mod sql;
pub mod sqlite;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::admission::{Counter, Lease};
use crate::blob::BlobInfo;
use crate::change::{Accepted, Change, CommandRecord, CursorMove, Edge, Verdict};
use crate::log::{AuditConfig, AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use crate::query::{ObjectQuery, QueryPage};
use crate::queue::{ClaimBatch, ClaimRequest, QueueRow, State};
use crate::{Ambient, Error, Key, Object, Refusal, Result, Timestamp};

/// Batch operations over the tables. SQLite, PostgreSQL and the simulator's in-memory store
/// pass the same suite.
///
/// A store has one clock, by which leases and due times are kept and judged: the database's, or that
/// of the only process that has the file. Callers' clocks may differ from it by any amount.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Admits or refuses each change; the admitted ones are durable when this returns. `now` is by
    /// the caller's clock: due times count from there.
    /// An error concerns the whole batch: nothing is acknowledged, though it may have been written.
    async fn commit_all(&self, changes: Vec<Change>, now: Timestamp) -> Result<Vec<Verdict>>;

    /// Claims due rows, fairly between organisations.
    async fn claim(&self, request: ClaimRequest) -> Result<ClaimBatch>;

    /// Acquires or renews a lease. `None` while another holder has it.
    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<Option<Lease>>;

    /// Releases a lease, if it is still held with this fence.
    async fn unlease(&self, name: &str, fence: i64) -> Result<()>;

    /// The existing objects among `keys`, in that order, deleted ones included.
    async fn get(&self, keys: &[Key]) -> Result<Vec<Object>>;
    /// One object, which may be a deleted one. May be served from a cache, but is never older than
    /// the last commit.
    async fn object(&self, key: &Key) -> Result<Option<Arc<Object>>> {
        Ok(self.get(std::slice::from_ref(key)).await?.pop().map(Arc::new))
    }
    async fn find(&self, find: &ObjectQuery) -> Result<QueryPage>;
    /// In order of their keys.
    async fn dependencies(&self, key: &Key) -> Result<Vec<Edge>>;
    async fn dependents(&self, key: &Key) -> Result<Vec<Edge>>;
    /// In order of their keys, those after `after`.
    async fn dependents_after(&self, key: &Key, after: &str, limit: usize) -> Result<Vec<Key>>;
    async fn counter(&self, name: &str) -> Result<Option<Counter>>;
    async fn command(&self, id: &str) -> Result<Option<CommandRecord>>;

    /// One part of a blob; [`crate::blob::Blobs`] reads all of it.
    async fn blob(&self, key: &Key, name: &str) -> Result<Option<(BlobInfo, Bytes)>>;
    /// The blobs of an object, by name.
    async fn blobs(&self, key: &Key) -> Result<Vec<BlobInfo>>;
    /// The position of a reader of the event log.
    async fn cursor(&self, name: &str) -> Result<Option<CursorMove>>;
    async fn cursors(&self) -> Result<Vec<CursorMove>>;

    /// Events after `after`, in order: at most `limit`, and no more after [`EVENTS_BYTES_MAX`] of data,
    /// so [`is_last_page`] tells whether there are others.
    async fn events(&self, after: i64, filter: &EventFilter, limit: usize) -> Result<Vec<Event>>;
    /// The number of the oldest event that is kept; `None` if there are none.
    async fn first_event(&self) -> Result<Option<i64>>;
    /// In order; newest first if `filter.before` is given.
    async fn audit(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>>;
    async fn head(&self) -> Result<LogHeads>;
    /// The number of the newest event, over all commits that were acknowledged before this call.
    async fn newest_event(&self) -> Result<i64> {
        Ok(self.head().await?.event_seq)
    }
    /// The same over the events of some kinds: a reader of those need not wait for others.
    async fn newest_event_of(&self, kinds: &KindFilter) -> Result<i64> {
        let _ = kinds;
        self.newest_event().await
    }

    async fn work(&self, filter: &WorkFilter, limit: usize) -> Result<Vec<QueueRow>>;
    async fn work_counts(&self) -> Result<Vec<WorkCount>>;

    /// Deletes old rows, and audit entries that an archive has; at most `limit` of each table.
    /// Returns how many.
    async fn purge(&self, purge: &Purge, limit: usize) -> Result<usize>;

    /// Proves that the store can be written and read. Fails while commits fail.
    async fn ping(&self) -> Result<()>;

    /// Leaves the store's files in their best form. Called once, when the server stops.
    async fn close(&self) -> Result<()> {
        Ok(())
    }

    fn wakeups(&self) -> &Wakeups;

    /// A description for people: `SQLite at …`.
    fn describe(&self) -> String;
}

/// A page of events ends with the one that brings its data to this size.
pub const EVENTS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Whether a page of events that was read with this limit is the last one.
pub fn is_last_page(events: &[Event], limit: usize) -> bool {
    let bytes: usize = events.iter().map(|event| event.data.text().len()).sum();
    events.len() < limit && bytes < EVENTS_BYTES_MAX
}

/// What is old.
#[derive(Debug, Clone, Copy)]
pub struct Purge {
    /// Events that no cursor still has to read.
    pub events_before: Timestamp,
    /// Events, even if a cursor has not read them.
    pub unread_events_before: Timestamp,
    pub commands_before: Timestamp,
    /// Deleted objects on which nothing depends, with their blobs.
    pub deleted_before: Timestamp,
}

#[derive(Debug, Clone, Default)]
pub struct WorkFilter {
    pub key: Option<Key>,
    pub org: Option<String>,
    pub state: Option<State>,
    pub paused: Option<bool>,
    /// Only rows that have failed at least once.
    pub failing: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct WorkCount {
    pub kind: String,
    pub state: State,
    pub paused: bool,
    pub failing: bool,
    pub rows: i64,
}

/// Wake-ups of the driver and of event readers. Hints only: each may come late, twice or not at
/// all; due times are the guarantee.
#[derive(Debug, Default)]
pub struct Wakeups {
    work: Arc<Watermark>,
    events: Arc<Watermark>,
}

/// Selects kinds.
pub type KindFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The number of the newest event of each kind.
pub type NewestByKind = BTreeMap<String, i64>;

/// The newest of the kinds that are selected.
fn newest_of(newest: &NewestByKind, kinds: &KindFilter) -> i64 {
    let wanted = newest.iter().filter(|(kind, _)| kinds(kind));
    wanted.map(|(_, seq)| *seq).max().unwrap_or(0)
}

/// A number that only grows. Wakes waiters in the order in which they began to wait, unlike a `watch`,
/// which draws lots: the simulator needs a defined order.
#[derive(Debug, Default)]
pub struct Watermark {
    number: AtomicI64,
    waiters: Notify,
}

impl Watermark {
    pub fn get(&self) -> i64 {
        self.number.load(Ordering::Acquire)
    }

    /// Does nothing if the number is as high.
    pub fn raise(&self, to: i64) {
        if self.number.fetch_max(to, Ordering::AcqRel) < to {
            self.waiters.notify_waiters();
        }
    }

    /// Waits until the number is above `known`, and returns it.
    pub async fn above(&self, known: i64) -> i64 {
        loop {
            // Before the number is read, so that no notification is missed.
            let next = self.waiters.notified();
            let number = self.get();
            if number > known {
                return number;
            }
            next.await;
        }
    }
}

/// Waits for notifications of work.
#[derive(Debug)]
pub struct Waiter {
    notifications: Arc<Watermark>,
    seen: i64,
}

impl Waiter {
    /// Ignores all notifications up to now.
    pub fn reset(&mut self) {
        self.seen = self.notifications.get();
    }

    /// Returns when there was a notification since the last call.
    pub async fn notified(&mut self) {
        self.seen = self.notifications.above(self.seen).await;
    }
}

impl Wakeups {
    /// Subscribes to notifications of work.
    pub fn work(&self) -> Waiter {
        Waiter { notifications: self.work.clone(), seen: self.work.get() }
    }

    /// The number of the newest event that this process knows of, to wait for more.
    pub fn events(&self) -> Arc<Watermark> {
        self.events.clone()
    }

    /// The number of the newest event that this process knows of.
    pub fn newest_event(&self) -> i64 {
        self.events.get()
    }

    pub fn notify_work(&self) {
        self.work.number.fetch_add(1, Ordering::AcqRel);
        self.work.waiters.notify_waiters();
    }

    pub fn notify_event(&self, seq: i64) {
        self.events.raise(seq);
    }
}

/// Sends a request to a task of the store, and waits for its reply.
async fn ask<R, T>(
    requests: &mpsc::Sender<R>,
    request: impl FnOnce(oneshot::Sender<Result<T>>) -> R,
) -> Result<T> {
    let stopped = || Error::unavailable("the store", "it has stopped");
    let (reply, answer) = oneshot::channel();
    requests.send(request(reply)).await.map_err(|_| stopped())?;
    answer.await.map_err(|_| stopped())?
}

/// The most changes and bytes of one transaction, so that a commit stays short.
const BATCH_CHANGES_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Splits the changes of one call so that each part fits into a transaction. Changes that belong
/// together stay together.
fn parts(changes: Vec<Change>) -> Vec<Vec<Change>> {
    if changes.len() < 2 {
        return vec![changes];
    }
    let mut parts: Vec<Vec<Change>> = vec![Vec::new()];
    let (mut count, mut bytes) = (0, 0);
    let mut groups: Vec<Vec<Change>> = Vec::new();
    for change in changes {
        match groups.last_mut() {
            Some(group) if change.follows => group.push(change),
            _ => groups.push(vec![change]),
        }
    }
    for group in groups {
        let size: usize = group.iter().map(Change::bytes).sum();
        let full = count + group.len() > BATCH_CHANGES_MAX || bytes + size > BATCH_BYTES_MAX;
        if full && count > 0 {
            parts.push(Vec::new());
            (count, bytes) = (0, 0);
        }
        (count, bytes) = (count + group.len(), bytes + size);
        parts.last_mut().expect("it is never empty").extend(group);
    }
    parts
}

/// Commits one change. A refusal is an error.
pub async fn commit(store: &dyn Store, change: Change, now: Timestamp) -> Result<Accepted> {
    let verdict = store.commit_all(vec![change], now).await?.pop();
    Ok(verdict.ok_or_else(|| Error::internal("the store", "it returned no verdict"))??)
}

/// Reads an object and commits the change that `change` returns for it; repeats if another writer
/// came in between. Without a change, nothing is committed.
pub async fn edit<T>(
    store: &dyn Store,
    ambient: &Ambient,
    key: &Key,
    mut change: impl FnMut(Option<&Object>, Timestamp) -> Result<(Option<Change>, T)>,
) -> Result<T> {
    loop {
        let there = store.object(key).await?;
        let now = ambient.now();
        let (change, value) = change(there.as_deref(), now)?;
        let Some(change) = change else { return Ok(value) };
        match commit(store, change, now).await {
            Err(Error::Refused(Refusal::Stale { .. } | Refusal::Exists(_))) => {}
            done => return done.map(|_| value),
        }
    }
}

/// Called after every commit with its number of changes and its duration.
pub type OnCommit = Arc<dyn Fn(usize, Duration) + Send + Sync>;

/// A server that was killed keeps its lock on the file until the system has ended it.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Opens the store that `database` names: a `postgres://` URL, or else a file in `data_dir`.
pub async fn open(
    database: Option<&str>,
    data_dir: &Path,
    audit: AuditConfig,
    clock: Ambient,
    on_commit: OnCommit,
) -> Result<Arc<dyn Store>> {
    match database {
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            let mut store = postgres::Postgres::open(url, on_commit).await?;
            store.audit = audit;
            Ok(Arc::new(store))
        }
        Some(_) => Err(Error::invalid(
            "database",
            "must begin with postgres://; leave it out for the embedded store",
        )),
        None => {
            let file = data_dir.join("mainstay.db");
            let deadline = tokio::time::Instant::now() + LOCK_WAIT;
            loop {
                match sqlite::Sqlite::open(&file, clock.clone(), on_commit.clone()) {
                    Err(Error::Conflict(_)) if tokio::time::Instant::now() < deadline => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    opened => {
                        let mut store = opened?;
                        store.audit = audit;
                        return Ok(Arc::new(store));
                    }
                }
            }
        }
    }
}

/// For callers that do not observe commits.
pub fn uncounted() -> OnCommit {
    Arc::new(|_, _| {})
}
