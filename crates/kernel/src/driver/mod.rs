//! The only loop: claim keys, look at each, settle it. It owns concurrency, lanes, leases,
//! timeouts, retries and panics, so that a domain's worker need not know of them.

mod backoff;
mod look;
mod retention;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use backoff::backoff;
pub use look::{End, Look};
pub use retention::{Retention, forget};
pub use worker::{AnyWorker, Decision, Next, Worker, Workers};

use crate::queue::{Ask, Claim};
use crate::{Ambient, Key, Object, Result, Store, Timestamp};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Objects that this process works on at once.
    pub slots: usize,
    /// How many of them are kept for urgent work.
    pub slots_urgent: usize,
    /// A worker that is silent for so long has lost its object.
    pub lease_s: u64,
    /// How long running work may go on after a stop was asked for.
    pub drain_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { slots: 256, slots_urgent: 32, lease_s: 15, drain_s: 10 }
    }
}

/// Called when a look ends: kind, how, how long it took, how late it began.
pub type Observe = Arc<dyn Fn(&str, End, Duration, Duration) + Send + Sync>;

pub struct Driver {
    /// Names this process in the queue.
    pub name: String,
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub workers: Workers,
    pub config: Config,
    pub observe: Observe,
}

/// With nothing due, how long until the queue is looked at all the same: clocks jump, and hints
/// may be lost.
const REST: Duration = Duration::from_secs(30);

impl Driver {
    /// Until `stop`; then no more is claimed, and what runs may finish within the drain time.
    pub async fn run(self, stop: CancellationToken) {
        let workers: BTreeMap<&'static str, Arc<dyn AnyWorker>> =
            self.workers.iter().map(|worker| (worker.kind(), worker.clone())).collect();
        let mut hints = self.store.hints().work();
        let mut running = JoinSet::new();
        let mut failures = 0;
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            hints.forget();
            let free = self.config.slots.saturating_sub(running.len());
            let wait = match self.claim(free, running.len()).await {
                Ok((claims, next_due)) => {
                    failures = 0;
                    let more = claims.len() == free && free > 0;
                    for (claim, object) in claims {
                        running.spawn(self.look(&workers, claim, object));
                    }
                    if more {
                        Duration::ZERO
                    } else {
                        next_due.map_or(REST, |due| self.ambient.now().until(due)).min(REST)
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "could not claim work");
                    failures += 1;
                    backoff(failures, self.ambient.fraction()).min(Duration::from_secs(5))
                }
            };
            let full = running.len() >= self.config.slots;
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                _ = running.join_next(), if full => {}
                () = hints.rung(), if !full && failures == 0 => {}
                () = tokio::time::sleep(wait), if !full => {}
            }
        }
        let drain = Duration::from_secs(self.config.drain_s);
        let finished = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(drain, finished).await.is_err() {
            tracing::warn!(left = running.len(), "work was cut short; it is taken up again later");
        }
    }

    async fn claim(
        &self,
        free: usize,
        running: usize,
    ) -> Result<(Vec<(Claim, Option<Object>)>, Option<Timestamp>)> {
        let normal = self.config.slots.saturating_sub(self.config.slots_urgent);
        let claimed = self
            .store
            .claim(Ask {
                worker: self.name.clone(),
                slots: free,
                slots_normal: normal.saturating_sub(running).min(free),
                now: self.ambient.now(),
                lease: Duration::from_secs(self.config.lease_s),
            })
            .await?;
        let keys: Vec<Key> = claimed.claims.iter().map(|claim| claim.key.clone()).collect();
        let found = if keys.is_empty() { Vec::new() } else { self.store.get(&keys).await? };
        let mut found: BTreeMap<Key, Object> = found
            .into_iter()
            .filter(|object| object.deleted_at.is_none())
            .map(|object| (object.key.clone(), object))
            .collect();
        let with_object = claimed.claims.into_iter().map(|claim| {
            let object = found.remove(&claim.key);
            (claim, object)
        });
        Ok((with_object.collect(), claimed.next_due))
    }

    fn look(
        &self,
        workers: &BTreeMap<&'static str, Arc<dyn AnyWorker>>,
        claim: Claim,
        object: Option<Object>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let worker = workers.get(claim.key.kind()).cloned();
        let (store, ambient, observe) =
            (self.store.clone(), self.ambient.clone(), self.observe.clone());
        let lease = Duration::from_secs(self.config.lease_s);
        async move {
            let (begun, late) = (tokio::time::Instant::now(), claim.due.until(ambient.now()));
            let kind = claim.key.kind().to_owned();
            let look = object.map(|object| Look {
                object,
                fence: claim.fence,
                attempt: claim.attempt,
                store: store.clone(),
                ambient: ambient.clone(),
                lease,
            });
            let context = look::Context { store, ambient };
            let end = look::run(worker, claim, look, &context).await;
            observe(&kind, end, begun.elapsed(), late);
        }
    }
}
