//! The shared store: any number of replicas on one PostgreSQL. Everything is read and written in
//! sets; each replica combines the requests of its callers into batches.

pub(crate) mod backup;
mod claim;
mod commit;
mod connect;
mod head_reader;
mod listen;
mod load;
mod purge;
mod read;
mod save;
mod schema;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use deadpool_postgres::{Object as Pooled, Pool};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error as PgError, Row};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::commit_health::CommitHealth;
use super::sql::{self, Row as _, Select};
use super::{
    KindFilter, OnCommit, Purge, Store, Wakeups, WorkCount, WorkFilter, ask, newest_of, parts,
};
use crate::admission::{Counter, Lease};
use crate::blob::BlobInfo;
use crate::change::{Change, CommandRecord, CursorMove, Edge, Verdict};
use crate::error::chain;
use crate::log::{AuditConfig, AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use crate::query::{ObjectQuery, QueryPage};
use crate::queue::{ClaimBatch, ClaimRequest, FairnessCursor, QueueRow};
use crate::{Error, Key, Object, Result, Timestamp};

use read::Param;
pub use schema::VERSION;

/// The bound of the queues of committers and head reader; beyond it callers wait.
const WAITING_MAX: usize = 4096;
/// Concurrent batches: while one waits for the disk, the next is loaded and decided.
const COMMITTERS: usize = 2;
/// Connections of one replica: two for committers, one to claim, the rest for readers.
const CONNECTIONS_MAX: usize = 16;
/// How long a request waits for a connection before it fails.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

pub struct Postgres {
    pub audit: AuditConfig,
    pool: Pool,
    place: String,
    commits: mpsc::Sender<commit::Waiting>,
    fairness: Mutex<FairnessCursor>,
    newest: mpsc::Sender<head_reader::Request>,
    wakeups: Arc<Wakeups>,
    health: CommitHealth,
    _stop: DropGuard,
}

impl Postgres {
    /// Connects, migrates the tables, and starts the committers.
    pub async fn open(url: &str, on_commit: OnCommit) -> Result<Postgres> {
        let (config, place) = connect::parse(url)?;
        let pool = connect::pool(config.clone(), CONNECTIONS_MAX, CONNECT_WAIT)?;
        schema::migrate(&mut *connection(&pool).await?).await?;
        let wakeups = Arc::new(Wakeups::default());
        let stop = CancellationToken::new();
        let (commits, waiting) = mpsc::channel(WAITING_MAX);
        let waiting = Arc::new(tokio::sync::Mutex::new(waiting));
        for _ in 0..COMMITTERS {
            let committer =
                commit::run(pool.clone(), waiting.clone(), wakeups.clone(), on_commit.clone());
            tokio::spawn(stop.clone().run_until_cancelled_owned(committer));
        }
        tokio::spawn(stop.clone().run_until_cancelled_owned(listen::run(config, wakeups.clone())));
        let (newest, requests) = mpsc::channel(WAITING_MAX);
        let head_reader = head_reader::run(pool.clone(), wakeups.clone(), requests);
        tokio::spawn(stop.clone().run_until_cancelled_owned(head_reader));
        let store = Postgres {
            audit: AuditConfig::default(),
            newest,
            pool,
            place,
            commits,
            fairness: Mutex::default(),
            wakeups,
            health: CommitHealth::default(),
            _stop: stop.drop_guard(),
        };
        store.wakeups.notify_event(store.head().await?.event_seq);
        Ok(store)
    }

    async fn client(&self) -> Result<Pooled> {
        connection(&self.pool).await
    }

    /// Runs a prepared statement.
    async fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        client.query(&statement, values).await.map_err(failed)
    }

    /// Runs a prepared statement and maps its rows.
    async fn select<T>(
        &self,
        select: Select<Param>,
        map: fn(&Row) -> Result<T, PgError>,
    ) -> Result<Vec<T>> {
        let values: Vec<&(dyn ToSql + Sync)> =
            select.values.iter().map(|Param(value)| &**value as &(dyn ToSql + Sync)).collect();
        let rows = self.query(&select.sql, &values).await?;
        rows.iter().map(map).collect::<Result<_, _>>().map_err(failed)
    }

    async fn edges(&self, sql: &str, of: &Key) -> Result<Vec<Edge>> {
        let rows = self.query(sql, &[&of.as_str()]).await?;
        rows.iter().map(sql::edge).collect::<Result<_, _>>().map_err(failed)
    }
}

async fn connection(pool: &Pool) -> Result<Pooled> {
    pool.get().await.map_err(|error| {
        let text = chain(&error);
        Error::unavailable(format!("the store (PostgreSQL: {text})"), error)
    })
}

/// Maps an error of PostgreSQL.
fn failed(error: PgError) -> Error {
    Error::unavailable(format!("the store (PostgreSQL: {})", chain(&error)), error)
}

#[async_trait]
impl Store for Postgres {
    async fn commit_all(&self, mut changes: Vec<Change>, now: Timestamp) -> Result<Vec<Verdict>> {
        self.audit.apply(&mut changes);
        let mut verdicts = Vec::with_capacity(changes.len());
        for changes in parts(changes) {
            let commit = |reply| commit::Waiting { changes, now, reply };
            verdicts.extend(self.health.note(ask(&self.commits, commit).await)?);
        }
        Ok(verdicts)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimBatch> {
        let client = self.client().await?;
        let fairness = self.fairness.lock().clone();
        let (claimed, fairness) =
            claim::claim(&client, &request, fairness).await.map_err(failed)?;
        *self.fairness.lock() = fairness;
        Ok(claimed)
    }

    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<Option<Lease>> {
        let client = self.client().await?;
        claim::lease(&client, name, holder, ttl).await.map_err(failed)
    }

    async fn unlease(&self, name: &str, fence: i64) -> Result<()> {
        self.query(sql::UNLEASE, &[&name, &fence]).await.map(|_| ())
    }

    async fn get(&self, keys: &[Key]) -> Result<Vec<Object>> {
        self.select(read::objects(keys), |row| Ok(sql::object(row)?.1)).await
    }

    async fn find(&self, find: &ObjectQuery) -> Result<QueryPage> {
        let mut found = self.select(read::find(find), sql::object).await?;
        let more = found.len() > find.limit;
        found.truncate(find.limit);
        let next = found.last().filter(|_| more).map(|(num, _)| *num);
        Ok(QueryPage { objects: found.into_iter().map(|(_, object)| object).collect(), next })
    }

    async fn dependencies(&self, key: &Key) -> Result<Vec<Edge>> {
        self.edges(sql::DEPENDENCIES, key).await
    }

    async fn dependents(&self, key: &Key) -> Result<Vec<Edge>> {
        self.edges(sql::DEPENDENTS, key).await
    }

    async fn dependents_after(&self, key: &Key, after: &str, limit: usize) -> Result<Vec<Key>> {
        let rows =
            self.query(sql::DEPENDENTS_AFTER, &[&key.as_str(), &after, &(limit as i64)]).await?;
        rows.iter().map(|row| row.key(0)).collect::<Result<_, _>>().map_err(failed)
    }

    async fn counter(&self, name: &str) -> Result<Option<Counter>> {
        let rows = self.query(sql::COUNTER, &[&name]).await?;
        Ok(rows.first().map(|row| Counter { used: row.get(0), limit: row.get(1) }))
    }

    async fn command(&self, id: &str) -> Result<Option<CommandRecord>> {
        let rows = self.query(sql::COMMAND, &[&id]).await?;
        rows.first().map(sql::command).transpose().map_err(failed)
    }

    async fn blob(&self, key: &Key, name: &str) -> Result<Option<(BlobInfo, Bytes)>> {
        let rows = self.query(sql::BLOB, &[&key.as_str(), &name]).await?;
        rows.first().map(sql::blob).transpose().map_err(failed)
    }

    async fn blobs(&self, key: &Key) -> Result<Vec<BlobInfo>> {
        let rows = self.query(sql::BLOBS, &[&key.as_str()]).await?;
        rows.iter().map(sql::blob_info).collect::<Result<_, _>>().map_err(failed)
    }

    async fn cursor(&self, name: &str) -> Result<Option<CursorMove>> {
        let rows = self.query(sql::CURSOR, &[&name]).await?;
        rows.first().map(sql::cursor).transpose().map_err(failed)
    }

    async fn cursors(&self) -> Result<Vec<CursorMove>> {
        let rows = self.query(sql::CURSORS, &[]).await?;
        rows.iter().map(sql::cursor).collect::<Result<_, _>>().map_err(failed)
    }

    async fn events(&self, after: i64, filter: &EventFilter, limit: usize) -> Result<Vec<Event>> {
        self.select(read::events(after, filter, limit), sql::event).await
    }

    async fn first_event(&self) -> Result<Option<i64>> {
        let rows = self.query(sql::FIRST_EVENT, &[]).await?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }

    async fn audit(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>> {
        self.select(sql::audit("audit", filter, limit), sql::audit_entry).await
    }

    async fn head(&self) -> Result<LogHeads> {
        let rows = self.query(sql::LOG_HEADS, &[]).await?;
        let head = rows.first().map(sql::log_heads).transpose().map_err(failed)?;
        head.ok_or_else(|| Error::internal("the store (PostgreSQL)", "meta has no row"))
    }

    async fn newest_event(&self) -> Result<i64> {
        Ok(ask(&self.newest, |reply| reply).await?.seq)
    }

    async fn newest_event_of(&self, kinds: &KindFilter) -> Result<i64> {
        Ok(newest_of(&ask(&self.newest, |reply| reply).await?.kinds, kinds))
    }

    async fn work(&self, filter: &WorkFilter, limit: usize) -> Result<Vec<QueueRow>> {
        self.select(sql::work(filter, limit), sql::queue_row).await
    }

    async fn work_counts(&self) -> Result<Vec<WorkCount>> {
        self.select(sql::work_counts(), sql::work_count).await
    }

    async fn purge(&self, purge: &Purge, limit: usize) -> Result<usize> {
        purge::purge(&self.client().await?, purge, limit).await.map_err(failed)
    }

    async fn ping(&self) -> Result<()> {
        let sql = "SELECT current_setting('transaction_read_only') FROM meta";
        let row = self.client().await?.query_one(sql, &[]).await.map_err(failed)?;
        match row.get(0) {
            "off" => self.health.prove(self).await,
            _ => Err(Error::unavailable("the store (PostgreSQL takes no writes)", "read-only")),
        }
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    fn describe(&self) -> String {
        format!("PostgreSQL at {}", self.place)
    }
}
