//! The reconcile loop: claim keys, run an attempt for each, complete it. It owns concurrency,
//! lanes, leases, timeouts, retries and panics, so that a worker does not have to.

mod attempt;
mod dependents;
mod retention;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use attempt::{Attempt, AttemptResult, Progress};
pub use retention::{Retention, run_retention};
pub use worker::{AnyWorker, Decision, Effect, Requeue, Worker, Workers};

use crate::queue::{Claim, ClaimRequest};
use crate::telemetry::with_trace;
use crate::{Ambient, Backoff, Error, Key, Lane, Object, Result, Store, Timestamp};

/// The delays between the attempts of one key.
const RETRIES: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(300) };

/// The wait before the next attempt, after `attempt` earlier failures.
pub fn backoff(attempt: i32, fraction: f64) -> Duration {
    RETRIES.delay(u32::try_from(attempt).unwrap_or(0), fraction)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Objects that this process reconciles at once.
    pub slots: usize,
    /// How many of them are reserved for the urgent lane.
    pub slots_urgent: usize,
    /// A worker that does not renew its lease for this long loses the object.
    pub lease_s: u64,
    /// How long running attempts may continue after a shutdown was requested.
    pub drain_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { slots: 256, slots_urgent: 32, lease_s: 15, drain_s: 10 }
    }
}

impl Config {
    /// Fields are named from the configuration's `driver`.
    pub fn check(&self) -> Result<()> {
        if self.slots_urgent >= self.slots {
            let why = "must be less than driver.slots, or other work is never done";
            return Err(Error::invalid("driver.slots_urgent", why));
        }
        if self.lease_s == 0 {
            return Err(Error::invalid("driver.lease_s", "must be at least 1"));
        }
        Ok(())
    }
}

/// Called when an attempt ends: kind, result, duration, delay behind its due time.
pub type Observe = Arc<dyn Fn(&str, AttemptResult, Duration, Duration) + Send + Sync>;

pub struct Driver {
    /// The name of this process in the queue.
    pub name: String,
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub workers: Workers,
    pub config: Config,
    pub observe: Observe,
}

/// A claim and its object, if there is one.
type ClaimedObject = (Claim, Option<Object>);

/// The free slots of this process.
struct Capacity {
    slots: usize,
    slots_normal: usize,
}

impl Capacity {
    fn remaining(running: usize, config: &Config) -> Capacity {
        let slots_normal = config.slots.saturating_sub(config.slots_urgent);
        Capacity {
            slots: config.slots.saturating_sub(running),
            slots_normal: slots_normal.saturating_sub(running),
        }
    }

    /// Then more rows may be due: the next free slot claims again.
    fn is_filled_by(&self, taken: &[ClaimedObject]) -> bool {
        let normal = taken.iter().filter(|(claim, _)| claim.lane == Lane::Normal).count();
        taken.len() >= self.slots || normal >= self.slots_normal
    }
}

/// The store's clock, read at a claim. Replicas' own clocks differ; times that one replica writes
/// and another compares come from this one.
#[derive(Debug, Clone, Copy)]
struct StoreClock {
    at: Timestamp,
    read: Instant,
}

impl StoreClock {
    fn now(&self) -> Timestamp {
        self.at.plus(self.read.elapsed())
    }
}

/// The longest wait between two claims when nothing is due: clocks jump, and wake-ups may get
/// lost.
const IDLE_POLL: Duration = Duration::from_secs(30);

impl Driver {
    /// Runs until `stop`. Then nothing more is claimed, and running attempts may finish within the
    /// drain time.
    pub async fn run(self, stop: CancellationToken) {
        let mut wakeups = self.store.wakeups().work();
        let mut running = JoinSet::new();
        let mut failures = 0;
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            wakeups.reset();
            let capacity = Capacity::remaining(running.len(), &self.config);
            let (wait, left_behind) = match self.claim(&capacity).await {
                Ok((claims, clock, next_due)) => {
                    failures = 0;
                    let left_behind = capacity.is_filled_by(&claims);
                    for (claim, object) in claims {
                        running.spawn(self.attempt(claim, object, clock, stop.child_token()));
                    }
                    let wait = next_due.map_or(IDLE_POLL, |due| clock.now().until(due));
                    (wait.min(IDLE_POLL), left_behind)
                }
                Err(error) => {
                    tracing::warn!(%error, "claiming work failed");
                    failures += 1;
                    let pause = backoff(failures, self.ambient.fraction());
                    (pause.min(Duration::from_secs(5)), false)
                }
            };
            let full = running.len() >= self.config.slots;
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                _ = running.join_next(), if left_behind && !running.is_empty() => {}
                () = wakeups.notified(), if !full && failures == 0 => {}
                () = tokio::time::sleep(wait), if !full => {}
            }
        }
        let drain = Duration::from_secs(self.config.drain_s);
        let finished = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(drain, finished).await.is_err() {
            tracing::warn!(
                left = running.len(),
                "drain timeout; the remaining attempts are retried later"
            );
        }
    }

    async fn claim(
        &self,
        capacity: &Capacity,
    ) -> Result<(Vec<ClaimedObject>, StoreClock, Option<Timestamp>)> {
        let claimed = self
            .store
            .claim(ClaimRequest {
                worker: self.name.clone(),
                slots: capacity.slots,
                slots_normal: capacity.slots_normal,
                ttl: Duration::from_secs(self.config.lease_s),
            })
            .await?;
        let clock = StoreClock { at: claimed.now, read: Instant::now() };
        let keys: Vec<Key> = claimed.claims.iter().map(|claim| claim.key.clone()).collect();
        let found = if keys.is_empty() { Vec::new() } else { self.store.get(&keys).await? };
        let mut found: BTreeMap<Key, Object> =
            found.into_iter().map(|object| (object.key.clone(), object)).collect();
        let with_object = claimed.claims.into_iter().map(|claim| {
            let object = found.remove(&claim.key);
            (claim, object)
        });
        Ok((with_object.collect(), clock, claimed.next_due))
    }

    fn attempt(
        &self,
        claim: Claim,
        object: Option<Object>,
        clock: StoreClock,
        cancelled: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        let worker = self.workers.iter().find(|it| it.covers(claim.key.kind())).cloned();
        let (store, ambient, observe) =
            (self.store.clone(), self.ambient.clone(), self.observe.clone());
        let lease = Duration::from_secs(self.config.lease_s);
        let begun = Instant::now();
        async move {
            let late = claim.due.until(clock.at);
            let kind = claim.key.kind().to_owned();
            let attempt = object.map(|object| Attempt {
                object,
                fence: claim.fence,
                failures: claim.attempt,
                store: store.clone(),
                ambient: ambient.clone(),
                clock,
                lease,
                lease_end: Mutex::new(begun + lease),
                cancelled,
                progress_at: Mutex::default(),
                pending_changes: Mutex::default(),
            });
            let cause = attempt.as_ref().and_then(|attempt| attempt.object.cause.trace);
            let trace = cause.map(|trace| trace.child(&ambient));
            let context = attempt::Context { store, ambient, clock };
            let run = attempt::run_attempt(worker, claim, attempt, &context);
            // What it calls belongs to the trace of the command that led to it.
            let end = match trace {
                Some(trace) => with_trace(trace, run).await,
                None => run.await,
            };
            observe(&kind, end, begun.elapsed(), late);
        }
    }
}
