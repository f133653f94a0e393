//! The store as one process sees it over a bad network: slow, failing, losing answers; and the
//! places where that process crashes or freezes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use kernel::admission::{Counter, Lease};
use kernel::blob::BlobInfo;
use kernel::change::{Change, CommandRecord, CursorMove, Edge, Verdict};
use kernel::log::{AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use kernel::query::{ObjectQuery, QueryPage};
use kernel::queue::{ClaimBatch, ClaimRequest, QueueRow};
use kernel::store::{Purge, Store, Wakeups, WorkCount, WorkFilter};
use kernel::{Error, Key, Object, Result, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::World;

/// How far the clock of a process may be off.
const SKEW_MAX_MS: usize = 300_000;

pub struct Flaky {
    pub world: Arc<World>,
    /// How far the clock of this process is ahead of the store's.
    skew_ms: i64,
    crashed: CancellationToken,
    frozen_until: Mutex<Instant>,
}

impl Flaky {
    pub fn new(world: Arc<World>) -> Flaky {
        let skew_ms = i64::try_from(world.pick(2 * SKEW_MAX_MS)).unwrap_or(0) - SKEW_MAX_MS as i64;
        let (crashed, frozen_until) = (CancellationToken::new(), Mutex::new(Instant::now()));
        Flaky { world, skew_ms, crashed, frozen_until }
    }

    /// The time as this process knows it.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.world.now().0 + self.skew_ms)
    }

    pub async fn crashed(&self) {
        self.crashed.cancelled().await;
    }

    pub fn was_frozen_within(&self, within: Duration) -> bool {
        *self.frozen_until.lock() + within > Instant::now()
    }

    /// A point at which the process may be slow, freeze as a whole, or end.
    pub async fn pass(&self) {
        loop {
            let until = *self.frozen_until.lock();
            if until <= Instant::now() {
                break;
            }
            tokio::time::sleep_until(until).await;
        }
        tokio::time::sleep(self.world.millis(0, 20)).await;
        if self.world.unlucky(0.004) {
            *self.frozen_until.lock() = Instant::now() + self.world.millis(1000, 90_000);
        }
        if self.world.unlucky(0.01) {
            self.crash().await;
        }
    }

    async fn crash(&self) {
        self.crashed.cancel();
        std::future::pending::<()>().await;
    }

    async fn read(&self) -> Result<Arc<crate::Memory>> {
        self.pass().await;
        self.fail_sometimes(0.02)?;
        Ok(self.world.memory.clone())
    }

    pub fn fail_sometimes(&self, chance: f64) -> Result<()> {
        if self.world.unlucky(chance) { Err(lost()) } else { Ok(()) }
    }
}

fn lost() -> Error {
    Error::unavailable("the network", "simulated")
}

#[async_trait]
impl Store for Flaky {
    async fn commit_all(&self, changes: Vec<Change>, now: Timestamp) -> Result<Vec<Verdict>> {
        self.read().await?;
        let verdicts = self.world.memory.commit_all(changes.clone(), now).await;
        if let Ok(verdicts) = &verdicts {
            self.world.note_commit(&changes, verdicts, now);
        }
        if let Err(broken) = self.world.memory.look(self.world.always) {
            self.world.broken.lock().get_or_insert(broken);
        }
        if self.world.unlucky(0.02) {
            self.crash().await;
        }
        tokio::time::sleep(self.world.millis(0, 5)).await;
        self.fail_sometimes(0.02)?;
        verdicts
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<ClaimBatch> {
        self.read().await?;
        let claimed = self.world.memory.claim_from(&ask, self.now());
        self.world.note_claims(&claimed.claims, ask.ttl);
        // Claimed, and nobody will ever know: the lease must run out.
        self.fail_sometimes(0.01)?;
        Ok(claimed)
    }

    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<Option<Lease>> {
        self.read().await?.lease(name, holder, ttl).await
    }

    async fn unlease(&self, name: &str, fence: i64) -> Result<()> {
        self.read().await?.unlease(name, fence).await
    }

    async fn get(&self, keys: &[Key]) -> Result<Vec<Object>> {
        self.read().await?.get(keys).await
    }

    async fn object(&self, key: &Key) -> Result<Option<Arc<Object>>> {
        self.read().await?.object(key).await
    }

    async fn find(&self, find: &ObjectQuery) -> Result<QueryPage> {
        self.read().await?.find(find).await
    }

    async fn dependencies(&self, key: &Key) -> Result<Vec<Edge>> {
        self.read().await?.dependencies(key).await
    }

    async fn dependents(&self, key: &Key) -> Result<Vec<Edge>> {
        self.read().await?.dependents(key).await
    }

    async fn dependents_after(&self, key: &Key, after: &str, limit: usize) -> Result<Vec<Key>> {
        self.read().await?.dependents_after(key, after, limit).await
    }

    async fn counter(&self, name: &str) -> Result<Option<Counter>> {
        self.read().await?.counter(name).await
    }

    async fn command(&self, id: &str) -> Result<Option<CommandRecord>> {
        self.read().await?.command(id).await
    }

    async fn blob(&self, key: &Key, name: &str) -> Result<Option<(BlobInfo, Bytes)>> {
        self.read().await?.blob(key, name).await
    }

    async fn blobs(&self, key: &Key) -> Result<Vec<BlobInfo>> {
        self.read().await?.blobs(key).await
    }

    async fn cursor(&self, name: &str) -> Result<Option<CursorMove>> {
        self.read().await?.cursor(name).await
    }

    async fn cursors(&self) -> Result<Vec<CursorMove>> {
        self.read().await?.cursors().await
    }

    async fn events(&self, after: i64, filter: &EventFilter, limit: usize) -> Result<Vec<Event>> {
        self.read().await?.events(after, filter, limit).await
    }

    async fn first_event(&self) -> Result<Option<i64>> {
        self.read().await?.first_event().await
    }

    async fn audit(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>> {
        self.read().await?.audit(filter, limit).await
    }

    async fn head(&self) -> Result<LogHeads> {
        self.read().await?.head().await
    }

    async fn newest_event(&self) -> Result<i64> {
        self.read().await?.newest_event().await
    }

    async fn work(&self, filter: &WorkFilter, limit: usize) -> Result<Vec<QueueRow>> {
        self.read().await?.work(filter, limit).await
    }

    async fn work_counts(&self) -> Result<Vec<WorkCount>> {
        self.read().await?.work_counts().await
    }

    async fn purge(&self, purge: &Purge, limit: usize) -> Result<usize> {
        self.read().await?.purge(purge, limit).await
    }

    async fn ping(&self) -> Result<()> {
        self.read().await?.ping().await
    }

    fn wakeups(&self) -> &Wakeups {
        self.world.memory.wakeups()
    }

    fn describe(&self) -> String {
        "the simulator's".into()
    }
}
