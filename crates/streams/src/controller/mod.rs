//! The controller: watches update the index and enqueue affected streams; workers reconcile one
//! stream at a time. All replicas watch, and only the leader reconciles.

mod classes;
#[cfg(test)]
mod classes_tests;
pub mod health;
mod leader_only_api;
mod reconcile;
mod sync_state;
mod watches;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use kernel::{Ambient, Result};
use kubernetes::{ElectionConfig, Lane, LeaderElection, Leadership, Outcome, Queue};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::index::Index;
use crate::metrics::{Metrics, statsd};
use crate::model::{ClassName, Key, NamespacedName};
use crate::ports::api_server::ApiServer;
use crate::work::Effects;
use classes::Classes;
use leader_only_api::LeaderOnlyApi;
use sync_state::SyncState;

/// How long shutdown waits for running work: longer than the longest request.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);
/// A worker that is busy with one stream for longer is stuck: all requests have timeouts.
const STUCK_AFTER: Duration = Duration::from_secs(180);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkItem {
    Stream(Key),
    Class(ClassName),
}

pub struct Operator {
    config: Config,
    effects: Effects,
    queue: Queue<WorkItem>,
    classes: Mutex<Classes>,
    sync: SyncState,
    leadership: Arc<Leadership>,
    metrics: Arc<Metrics>,
    secrets_watched: AtomicBool,
    /// Consecutive attempts to create a Job whose name is taken by one that no watch reports.
    name_conflicts: Mutex<HashMap<Key, u32>>,
    /// This process leads and everything has been listed.
    reconciling: AtomicBool,
    /// Notified when `reconciling` may have to change.
    leadership_changed: Notify,
    /// Since when each worker is busy.
    busy: Mutex<Vec<Option<Instant>>>,
    /// Tasks that ended before shutdown.
    dead_tasks: Mutex<BTreeSet<&'static str>>,
    tasks: TaskTracker,
    /// Cancelled at shutdown; stops everything but leader election.
    stopping: CancellationToken,
}

/// Runs the operator until shutdown; then finishes running work and releases the Lease.
pub async fn run(
    api: Arc<dyn ApiServer>,
    config: Config,
    shutdown: CancellationToken,
) -> Result<()> {
    let operator = Operator::new(api, config, Ambient::system());
    operator.run(shutdown).await
}

impl Operator {
    pub fn new(api: Arc<dyn ApiServer>, config: Config, ambient: Ambient) -> Arc<Operator> {
        let metrics = Arc::new(Metrics::new(config.legacy_metrics));
        let index = Arc::new(Mutex::new(Index::new(config.settings.clone())));
        let now = jiff::Timestamp::from_millisecond(ambient.now().millis()).unwrap_or_default();
        let leadership = Arc::new(if config.lease.enabled {
            Leadership::none()
        } else {
            Leadership::permanent(now)
        });
        let leader_only_api = LeaderOnlyApi {
            api: api.clone(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
        };
        let workers = config.workers;
        Arc::new(Operator {
            config,
            effects: Effects { api: Arc::new(leader_only_api), index, ambient: ambient.clone() },
            queue: Queue::new(ambient),
            classes: Mutex::default(),
            sync: SyncState::default(),
            leadership,
            metrics,
            secrets_watched: AtomicBool::new(false),
            name_conflicts: Mutex::default(),
            reconciling: AtomicBool::new(false),
            leadership_changed: Notify::new(),
            busy: Mutex::new(vec![None; workers]),
            dead_tasks: Mutex::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// The state of the cluster.
    pub fn index(&self) -> &Arc<Mutex<Index>> {
        &self.effects.index
    }

    /// The watched namespaces; empty for all.
    pub fn namespaces(&self) -> &[String] {
        &self.config.namespaces
    }

    /// Whether everything has been listed once.
    pub fn is_ready(&self) -> bool {
        *self.sync.synced().borrow() && self.classes.lock().all_synced()
    }

    pub fn is_leading(&self) -> bool {
        self.leadership.until().is_some()
    }

    /// Why this process is unhealthy; none if it is healthy.
    pub fn unhealthy_reason(&self) -> Option<String> {
        if let Some(part) = self.dead_tasks.lock().first() {
            return Some(format!("{part} has ended"));
        }
        let stuck =
            |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() > STUCK_AFTER);
        let stuck = self.busy.lock().iter().filter(|since| stuck(since)).count();
        (stuck > 0).then(|| format!("{stuck} workers are stuck"))
    }

    /// The metrics in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.metrics.text(&self.effects.index, self.queue.depth())
    }

    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) -> Result<()> {
        let servers = crate::controller::health::serve(&self, &self.config).await?;
        for unknown in &self.config.unknown {
            tracing::warn!(key = unknown, "ignoring unknown setting");
        }
        let lease = CancellationToken::new();
        let elect = self.elect(lease.clone());
        self.start_watches();
        let operator = self.clone();
        self.supervise("leadership", self.stopping.clone(), async move {
            operator.run_leadership().await
        });
        if let Some(url) = self.config.dogstatsd.clone().filter(|_| self.config.legacy_metrics) {
            let operator = self.clone();
            self.tasks.spawn(async move { operator.report_classes(&url).await });
        }
        let workers = TaskTracker::new();
        for worker in 0..self.config.workers {
            workers.spawn(self.clone().run_worker(worker));
        }
        workers.close();
        shutdown.cancelled().await;
        tracing::info!("shutting down; finishing running work");
        self.stopping.cancel();
        self.queue.close();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, workers.wait()).await.is_err() {
            tracing::warn!("a worker did not stop within the shutdown timeout");
        }
        lease.cancel();
        self.tasks.close();
        if let Some(elect) = elect {
            let _ = elect.await;
        }
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("a watch did not stop within the shutdown timeout");
        }
        servers.stop(self.config.probes_shutdown).await;
        Ok(())
    }

    fn elect(self: &Arc<Self>, stop: CancellationToken) -> Option<JoinHandle<()>> {
        let config = &self.config.lease;
        if !config.enabled {
            return None;
        }
        let holder = match config.holder.as_str() {
            "" => format!("{}_{}", hostname(), self.effects.ambient.id()),
            holder => holder.into(),
        };
        let namespace = match config.namespace.as_str() {
            "" => own_namespace(),
            namespace => namespace.into(),
        };
        let elect = LeaderElection {
            api: self.effects.api.clone(),
            config: ElectionConfig {
                object_name: NamespacedName::new(&namespace, &config.name),
                holder,
                duration: config.duration,
                renew_deadline: config.renew_deadline,
                retry_period: config.retry_period,
            },
            ambient: self.effects.ambient.clone(),
            leadership: self.leadership.clone(),
        };
        Some(self.supervise("leader election", stop.clone(), elect.run(stop)))
    }

    /// Spawns a task that must run until `stop`.
    fn supervise(
        self: &Arc<Self>,
        name: &'static str,
        stop: CancellationToken,
        part: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let operator = self.clone();
        self.tasks.spawn(async move {
            let ran = AssertUnwindSafe(part).catch_unwind().await;
            if ran.is_err() || !stop.is_cancelled() {
                tracing::error!(task = name, "task ended unexpectedly");
                operator.dead_tasks.lock().insert(name);
            }
        })
    }

    /// Opens the queue while this process leads, and enqueues all streams once everything is
    /// listed.
    async fn run_leadership(self: Arc<Self>) {
        let (mut since, mut synced) = (self.leadership.since(), self.sync.synced());
        let mut leading = None;
        let mut sweep = tokio::time::interval(Duration::from_secs(60));
        loop {
            let leading_since = *since.borrow_and_update();
            if leading_since != leading {
                leading = leading_since;
                self.set_leading(leading_since);
            }
            let known = *synced.borrow_and_update() && self.classes.lock().versions_listed();
            let before = self.reconciling.swap(leading_since.is_some() && known, Ordering::SeqCst);
            if !before && self.reconciling.load(Ordering::SeqCst) {
                let keys = self.effects.index.lock().all_keys();
                tracing::info!(streams = keys.len(), "reconciling all streams");
                self.enqueue(keys, Lane::Normal);
            }
            tokio::select! {
                () = self.stopping.cancelled() => return,
                _ = since.changed() => {}
                _ = synced.changed() => {}
                () = self.leadership_changed.notified() => {}
                _ = sweep.tick() => self.queue.sweep(),
            }
        }
    }

    fn set_leading(&self, since: Option<jiff::Timestamp>) {
        self.metrics.set_leading(since.is_some());
        self.effects.index.lock().leading_since = since;
        self.name_conflicts.lock().clear();
        match since {
            None => self.queue.close(),
            Some(_) => {
                self.queue.open();
                self.enqueue_classes();
            }
        }
    }

    async fn run_worker(self: Arc<Self>, worker: usize) {
        loop {
            let (item, lane) = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                taken = self.queue.pop() => taken,
            };
            let begun = Instant::now();
            self.busy.lock()[worker] = Some(begun);
            // A panic while reconciling one item must not affect the others.
            let reconciled = AssertUnwindSafe(self.reconcile(&item, lane)).catch_unwind().await;
            self.busy.lock()[worker] = None;
            let (outcome, acted) = match reconciled {
                Ok(reconciled) => (reconciled.outcome, reconciled.acted),
                Err(_) => {
                    tracing::error!(?item, "reconcile panicked");
                    (Outcome::Retry("panic", Duration::from_secs(10)), true)
                }
            };
            if let WorkItem::Stream(key) = &item {
                let label = match outcome {
                    Outcome::Done(None) => "rest",
                    Outcome::Done(Some(_)) => "later",
                    Outcome::Requeue(_) => "again",
                    Outcome::Retry(..) => "retry",
                };
                self.metrics.reconciled(&key.class, label, begun.elapsed());
            }
            self.queue.finish(&item, outcome, acted);
        }
    }

    /// Sends the counts of classes to DogStatsD, as the existing operator does. Only the leader
    /// sends.
    async fn report_classes(&self, url: &str) {
        let mut wait = self.config.report_after;
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(wait) => wait = self.config.report_every,
            }
            if !self.is_leading() {
                continue;
            }
            let classes: Vec<_> = self.effects.index.lock().classes().cloned().collect();
            if let Err(error) = statsd::count(url, &classes).await {
                tracing::warn!(url, %error, "sending metrics to DogStatsD failed");
            }
        }
    }
}

fn hostname() -> String {
    let name = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    name.or_else(|| std::fs::read_to_string("/etc/hostname").ok().map(|name| name.trim().into()))
        .unwrap_or_else(|| "mainstay".into())
}

/// The namespace of this pod.
fn own_namespace() -> String {
    let file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    match std::fs::read_to_string(file) {
        Ok(namespace) if !namespace.trim().is_empty() => namespace.trim().into(),
        _ => "default".into(),
    }
}
