//! The embedded store: one file, one writer thread with group commit, concurrent readers.

pub(crate) mod backup;
mod cache;
mod checkpoint;
mod claim;
mod load;
mod log_index;
mod purge;
mod read;
mod save;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use parking_lot::{Mutex, RwLock};
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, params};
use tokio::sync::mpsc;

use super::commit_health::CommitHealth;
use super::sql::{self, Select};
use super::{
    KindFilter, NewestByKind, OnCommit, Purge, Store, Wakeups, WorkCount, WorkFilter, ask,
    newest_of, parts,
};
use crate::admission::{Counter, Lease};
use crate::blob::BlobInfo;
use crate::change::{Change, CommandRecord, CursorMove, Edge, Verdict};
use crate::log::{AuditConfig, AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use crate::query::{ObjectQuery, QueryPage};
use crate::queue::{ClaimBatch, ClaimRequest, QueueRow};
use crate::{Ambient, Error, Key, Object, Result, Timestamp};

use cache::Cache;
use checkpoint::Checkpointer;
pub use schema::VERSION;
use writer::{Commit, Op, Session, Task, Writer};

/// The bound of the writer's queue: enough to fill a batch while one is being written. Beyond it
/// callers wait, and the limit on concurrent requests throttles clients.
const WAITING_MAX: usize = 4096;
/// Readers kept open between reads.
const READERS_MAX: usize = 8;

pub struct Sqlite {
    pub audit: AuditConfig,
    path: PathBuf,
    /// `None` only while the store closes.
    ops: Option<mpsc::Sender<Op>>,
    writer: Option<std::thread::JoinHandle<()>>,
    readers: Arc<Readers>,
    cache: Arc<Cache>,
    wakeups: Arc<Wakeups>,
    newest: Arc<RwLock<NewestByKind>>,
    health: CommitHealth,
}

impl Sqlite {
    /// Opens the file, migrates its tables, and starts the writer. The store's clock is that of the
    /// process, since no other one has the file.
    pub fn open(path: &Path, clock: Ambient, on_commit: OnCommit) -> Result<Sqlite> {
        let lock = exclusive(path)?;
        let mut connection = Connection::open(path).map_err(|e| opening(path, e))?;
        configure(&connection).map_err(|e| opening(path, e))?;
        schema::migrate(&mut connection).map_err(|e| opening(path, e))??;
        let (wakeups, cache) = (Arc::new(Wakeups::default()), Arc::new(Cache::new()));
        let (ops, waiting) = mpsc::channel(WAITING_MAX);
        let checkpointer = Checkpointer::start(path, &connection)?;
        let parts = (connection, checkpointer, lock);
        let newest = Arc::<RwLock<NewestByKind>>::default();
        let (woken, known) = (wakeups.clone(), newest.clone());
        let writer = Writer::new(parts, cache.clone(), woken, known, clock, on_commit)?;
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run(waiting))
            .map_err(|e| Error::internal("starting the store's writer", e))?;
        let readers = Arc::new(Readers { path: path.into(), idle: Mutex::default() });
        let (path, ops, writer) = (path.into(), Some(ops), Some(writer));
        let (audit, health) = (AuditConfig::default(), CommitHealth::default());
        Ok(Sqlite { audit, path, ops, writer, readers, cache, wakeups, newest, health })
    }

    fn ops(&self) -> &mpsc::Sender<Op> {
        self.ops.as_ref().expect("the store is not being dropped")
    }

    /// Runs a task in the writer's transaction.
    async fn write<T: Send + 'static>(
        &self,
        cost: usize,
        sync: bool,
        work: impl FnMut(&mut Session<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let task = |reply| Box::new(Task { work, reply, result: None });
        ask(self.ops(), |reply| Op::Task { cost, sync, task: task(reply) }).await
    }

    /// Runs a query that may be slow on a blocking thread.
    async fn select<T: Send + 'static>(
        &self,
        select: Select<Value>,
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<Vec<T>> {
        self.read(|connection| read::select(connection, select, map)).await
    }

    /// Runs a read that may be slow on a blocking thread.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let readers = self.readers.clone();
        tokio::task::spawn_blocking(move || readers.with(read))
            .await
            .map_err(|e| Error::internal("reading the store", e))?
    }
}

/// Closes the file before it returns, so that it can be opened again at once.
impl Drop for Sqlite {
    fn drop(&mut self) {
        self.ops = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Locks the file for this process: a second one would miss our wake-ups, and two writers would
/// contend for the file.
fn exclusive(path: &Path) -> Result<std::fs::File> {
    let lock_path = path.with_extension("lock");
    let lock =
        std::fs::OpenOptions::new().create(true).write(true).truncate(false).open(&lock_path);
    let lock = lock.map_err(|e| opening(&lock_path, e))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(_) => Err(Error::Conflict(format!(
            "{} is in use by another server; stop it, or give this one a --data-dir of its own (several servers share one PostgreSQL: --database postgres://…)",
            path.display()
        ))),
    }
}

fn opening(path: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let (path, source) = (path.display(), source.into());
    match source.downcast_ref::<rusqlite::Error>() {
        Some(error) if damaged(error) => Error::internal(
            format!(
                "{path} is damaged; restore it from a backup, or move it away to start with an empty one"
            ),
            source,
        ),
        _ => Error::unavailable(format!("{path} ({source})"), source),
    }
}

fn damaged(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

/// Uses large pages: a batch of transitions touches rows all over the file, and the WAL holds
/// whole pages.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    configure_each(connection)?;
    connection.pragma_update(None, "page_size", 16_384)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -32_000)
}

/// For writer and readers. Plans do not depend on parameters: otherwise a partial index makes
/// SQLite prepare every statement on its table again whenever a parameter changes.
fn configure_each(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// Maps an error of SQLite.
fn failed(error: rusqlite::Error) -> Error {
    Error::unavailable(format!("the store ({})", what_failed(&error)), error)
}

fn what_failed(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode::{DiskFull, ReadOnly};
    match error.sqlite_error_code() {
        _ if damaged(error) => "its file is damaged".into(),
        Some(DiskFull) => "the disk is full".into(),
        Some(ReadOnly) => "its file or directory is read-only".into(),
        _ => error.to_string(),
    }
}

/// A pool of read-only connections. A read takes an idle one or opens another, so reads never wait.
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    fn with<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.open().map_err(failed)?,
        };
        let result = read(&connection);
        let mut idle = self.idle.lock();
        if idle.len() < READERS_MAX {
            idle.push(connection);
        }
        result.map_err(failed)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        configure_each(&connection)?;
        connection.pragma_update(None, "cache_size", -2000)?;
        Ok(connection)
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn commit_all(&self, mut changes: Vec<Change>, now: Timestamp) -> Result<Vec<Verdict>> {
        self.audit.apply(&mut changes);
        let mut verdicts = Vec::with_capacity(changes.len());
        for changes in parts(changes) {
            let commit = |reply| Op::Commit(Commit { changes, now, reply });
            verdicts.extend(self.health.note(ask(self.ops(), commit).await)?);
        }
        Ok(verdicts)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimBatch> {
        let slots = request.slots;
        self.write(slots, false, move |session| claim::claim(session, &request)).await
    }

    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<Option<Lease>> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.write(1, true, move |session| writer::lease(session, &name, &holder, ttl)).await
    }

    async fn unlease(&self, name: &str, fence: i64) -> Result<()> {
        let name = name.to_owned();
        let unlease = move |session: &mut Session<'_>| {
            save::execute(session.connection, sql::UNLEASE, params![name, fence])
        };
        self.write(1, true, unlease).await
    }

    /// Runs on the calling thread: look-ups by key take microseconds.
    async fn get(&self, keys: &[Key]) -> Result<Vec<Object>> {
        self.readers.with(|connection| read::objects(connection, keys))
    }

    async fn object(&self, key: &Key) -> Result<Option<Arc<Object>>> {
        let epoch = match self.cache.get(key) {
            Ok(object) => return Ok(Some(object)),
            Err(epoch) => epoch,
        };
        let found = self.get(std::slice::from_ref(key)).await?.pop().map(Arc::new);
        if let Some(object) = &found {
            self.cache.put(object.clone(), epoch);
        }
        Ok(found)
    }

    async fn find(&self, find: &ObjectQuery) -> Result<QueryPage> {
        let find = find.clone();
        self.read(move |connection| read::find(connection, &find)).await
    }

    async fn dependencies(&self, key: &Key) -> Result<Vec<Edge>> {
        self.readers.with(|connection| read::edges(connection, sql::DEPENDENCIES, key))
    }

    async fn dependents(&self, key: &Key) -> Result<Vec<Edge>> {
        self.readers.with(|connection| read::edges(connection, sql::DEPENDENTS, key))
    }

    async fn dependents_after(&self, key: &Key, after: &str, limit: usize) -> Result<Vec<Key>> {
        self.readers.with(|connection| {
            let mut statement = connection.prepare_cached(sql::DEPENDENTS_AFTER)?;
            let params = params![key.as_str(), after, limit as i64];
            statement.query_map(params, |row| sql::Row::key(row, 0))?.collect()
        })
    }

    async fn counter(&self, name: &str) -> Result<Option<Counter>> {
        self.readers.with(|connection| load::counter(connection, name))
    }

    async fn command(&self, id: &str) -> Result<Option<CommandRecord>> {
        self.readers.with(|connection| load::command(connection, id))
    }

    async fn blob(&self, key: &Key, name: &str) -> Result<Option<(BlobInfo, Bytes)>> {
        let (key, name) = (key.clone(), name.to_owned());
        let place = move |connection: &Connection| {
            load::one(connection, sql::BLOB, [key.as_str(), &name], |row| sql::blob(row))
        };
        self.read(place).await
    }

    async fn blobs(&self, key: &Key) -> Result<Vec<BlobInfo>> {
        self.readers.with(|connection| {
            let mut statement = connection.prepare_cached(sql::BLOBS)?;
            statement.query_map([key.as_str()], |row| sql::blob_info(row))?.collect()
        })
    }

    async fn cursor(&self, name: &str) -> Result<Option<CursorMove>> {
        self.readers.with(|connection| load::cursor(connection, name))
    }

    async fn cursors(&self) -> Result<Vec<CursorMove>> {
        self.readers.with(|connection| {
            let mut statement = connection.prepare_cached(sql::CURSORS)?;
            statement.query_map([], |row| sql::cursor(row))?.collect()
        })
    }

    async fn events(&self, after: i64, filter: &EventFilter, limit: usize) -> Result<Vec<Event>> {
        let from = match (&filter.subject, &filter.kind) {
            (Some(_), _) => log_index::EVENTS_OF,
            (None, Some(_)) => log_index::EVENTS_OF_KIND,
            (None, None) => "events",
        };
        let select = sql::events(from, after, filter, limit);
        self.read(|connection| read::events(connection, select)).await
    }

    async fn first_event(&self) -> Result<Option<i64>> {
        self.readers.with(|connection| connection.query_row(sql::FIRST_EVENT, [], |row| row.get(0)))
    }

    async fn audit(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>> {
        let from = if filter.target.is_some() { log_index::AUDIT_OF } else { "audit" };
        self.select(sql::audit(from, filter, limit), |row| sql::audit_entry(row)).await
    }

    async fn head(&self) -> Result<LogHeads> {
        self.readers.with(load::head)
    }

    /// Exact: this process is the only writer, and the writer notifies before it replies.
    async fn newest_event(&self) -> Result<i64> {
        Ok(self.wakeups.newest_event())
    }

    async fn newest_event_of(&self, kinds: &KindFilter) -> Result<i64> {
        Ok(newest_of(&self.newest.read(), kinds))
    }

    async fn work(&self, filter: &WorkFilter, limit: usize) -> Result<Vec<QueueRow>> {
        self.select(sql::work(filter, limit), |row| sql::queue_row(row)).await
    }

    async fn work_counts(&self) -> Result<Vec<WorkCount>> {
        self.select(sql::work_counts(), |row| sql::work_count(row)).await
    }

    async fn purge(&self, purge: &Purge, limit: usize) -> Result<usize> {
        let purge = *purge;
        let run = move |session: &mut Session<'_>| purge::purge(session, &purge, limit);
        self.write(1, true, run).await
    }

    async fn ping(&self) -> Result<()> {
        self.readers
            .with(|connection| connection.query_row("SELECT 1 FROM meta", [], |_| Ok(())))?;
        let ping = |session: &mut Session<'_>| {
            save::execute(session.connection, "UPDATE meta SET fence = fence", [])
        };
        self.write(1, false, ping).await?;
        self.health.prove(self).await
    }

    /// Moves everything into the one file and empties the write-ahead log: who copies only
    /// `mainstay.db` of a stopped server has all of it.
    async fn close(&self) -> Result<()> {
        let path = self.path.clone();
        let truncate = move || {
            let connection = Connection::open(&path)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        };
        let busy: bool = tokio::task::spawn_blocking(truncate)
            .await
            .map_err(|e| Error::internal("closing the store", e))?
            .map_err(failed)?;
        if busy {
            return Err(Error::unavailable("the write-ahead log", "a reader still uses it"));
        }
        Ok(())
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    fn describe(&self) -> String {
        format!("SQLite at {}", self.path.display())
    }
}
