//! The shared store: any number of replicas on one PostgreSQL. Everything is read and written in
//! sets; each replica combines the requests of its callers into batches.

mod claim;
mod commit;
mod connect;
mod head_reader;
mod listen;
mod load;
mod read;
mod save;
mod schema;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::{Object as Pooled, Pool};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{OnCommit, Store, Wakeups, WorkCount, WorkFilter};
use crate::admission::{Counter, Lease};
use crate::change::{Change, CommandRecord, Verdict};
use crate::log::{AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use crate::query::{ObjectQuery, QueryPage};
use crate::queue::{ClaimBatch, ClaimRequest, QueueRow};
use crate::{Error, Key, Object, Result, Timestamp};

pub use schema::VERSION;

/// The bound of the committers' queue; beyond it callers wait.
const WAITING_MAX: usize = 4096;
/// Concurrent batches: while one waits for the disk, the next is loaded and decided.
const COMMITTERS: usize = 2;
/// Connections of one replica: two for committers, one to claim, the rest for readers.
const CONNECTIONS_MAX: usize = 16;
/// How long a request waits for a connection before it fails.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

pub struct Postgres {
    pool: Pool,
    place: String,
    commits: mpsc::Sender<commit::Waiting>,
    fairness: Mutex<claim::FairnessCursor>,
    newest: head_reader::HeadReader,
    wakeups: Arc<Wakeups>,
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
        let (newest, answers) = head_reader::HeadReader::new(pool.clone(), wakeups.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(answers));
        let store = Postgres {
            newest,
            pool,
            place,
            commits,
            fairness: Mutex::default(),
            wakeups,
            _stop: stop.drop_guard(),
        };
        store.wakeups.notify_event(store.head().await?.event_seq);
        Ok(store)
    }

    async fn client(&self) -> Result<Pooled> {
        connection(&self.pool).await
    }
}

async fn connection(pool: &Pool) -> Result<Pooled> {
    pool.get().await.map_err(|error| {
        let text = chain(&error);
        Error::unavailable(format!("the store (PostgreSQL: {text})"), error)
    })
}

/// Maps an error of PostgreSQL.
fn failed(error: tokio_postgres::Error) -> Error {
    Error::unavailable(format!("the store (PostgreSQL: {})", chain(&error)), error)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

#[async_trait]
impl Store for Postgres {
    async fn commit_all(&self, changes: Vec<Change>, now: Timestamp) -> Result<Vec<Verdict>> {
        let stopped = || Error::unavailable("the store", "it is shutting down");
        let (reply, answer) = oneshot::channel();
        self.commits.send(commit::Waiting { changes, now, reply }).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<ClaimBatch> {
        let client = self.client().await?;
        let fairness = self.fairness.lock().clone();
        let (claimed, fairness) = claim::claim(&client, &ask, fairness).await.map_err(failed)?;
        *self.fairness.lock() = fairness;
        Ok(claimed)
    }

    async fn lease(
        &self,
        name: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<Lease>> {
        let client = self.client().await?;
        claim::lease(&client, name, holder, now, until).await.map_err(failed)
    }

    async fn unlease(&self, name: &str, fence: i64) -> Result<()> {
        let client = self.client().await?;
        let sql = "UPDATE leases SET until = 0 WHERE name = $1 AND fence = $2";
        client.execute(sql, &[&name, &fence]).await.map_err(failed)?;
        Ok(())
    }

    async fn get(&self, keys: &[Key]) -> Result<Vec<Object>> {
        read::objects(&self.client().await?, keys).await
    }

    async fn find(&self, find: &ObjectQuery) -> Result<QueryPage> {
        read::find(&self.client().await?, find).await
    }

    async fn dependencies(&self, key: &Key) -> Result<Vec<Key>> {
        let sql = "SELECT dependency FROM edges WHERE dependent = $1 ORDER BY 1";
        read::keys(&self.client().await?, sql, key).await
    }

    async fn dependents(&self, key: &Key) -> Result<Vec<Key>> {
        let sql = "SELECT dependent FROM edges WHERE dependency = $1 ORDER BY 1";
        read::keys(&self.client().await?, sql, key).await
    }

    async fn counter(&self, name: &str) -> Result<Option<Counter>> {
        read::counter(&self.client().await?, name).await
    }

    async fn command(&self, id: &str) -> Result<Option<CommandRecord>> {
        read::command(&self.client().await?, id).await
    }

    async fn events(&self, after: i64, filter: &EventFilter, limit: usize) -> Result<Vec<Event>> {
        read::events(&self.client().await?, after, filter, limit).await
    }

    async fn first_event(&self) -> Result<Option<i64>> {
        let row = self.client().await?.query_one("SELECT min(seq) FROM events", &[]).await;
        Ok(row.map_err(failed)?.get(0))
    }

    async fn audit(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>> {
        read::audit(&self.client().await?, filter, limit).await
    }

    async fn head(&self) -> Result<LogHeads> {
        read::head(&self.client().await?).await
    }

    async fn newest_event(&self) -> Result<i64> {
        self.newest.ask().await
    }

    async fn work(&self, filter: &WorkFilter, limit: usize) -> Result<Vec<QueueRow>> {
        read::work(&self.client().await?, filter, limit).await
    }

    async fn work_counts(&self) -> Result<Vec<WorkCount>> {
        read::work_counts(&self.client().await?).await
    }

    async fn purge(
        &self,
        events_before: Timestamp,
        commands_before: Timestamp,
        limit: usize,
    ) -> Result<usize> {
        let client = self.client().await?;
        claim::purge(&client, events_before, commands_before, limit).await.map_err(failed)
    }

    async fn ping(&self) -> Result<()> {
        let sql = "SELECT current_setting('transaction_read_only') FROM meta";
        let row = self.client().await?.query_one(sql, &[]).await.map_err(failed)?;
        match row.get(0) {
            "off" => Ok(()),
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
