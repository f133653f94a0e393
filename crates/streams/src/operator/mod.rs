//! The operator: watches change the index, whom they touch is queued, and workers look at one
//! stream at a time: decide, carry out, decide again. Only the holder of the Lease has workers that
//! act; all replicas watch.

mod acting;
mod classes;
#[cfg(test)]
mod classes_tests;
mod follow;
mod look;
pub mod queue;
mod sight;
mod standing;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use kernel::{Ambient, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::index::Index;
use crate::lease::{Campaign, Tenure, Terms};
use crate::metrics::{Metrics, statsd};
use crate::model::{ClassName, Key, Place};
use crate::work::Hands;
use acting::Acting;
use classes::Classes;
use queue::{Lane, Outcome, Queue};
use sight::Sight;

/// What is under way at the end may take so long: the longest request, and some.
const STOP: Duration = Duration::from_secs(15);
/// A worker that is busy with one stream for longer is stuck: its requests all have limits.
const STUCK: Duration = Duration::from_secs(180);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Item {
    Stream(Key),
    Class(ClassName),
}

pub struct Operator {
    config: Config,
    hands: Hands,
    queue: Queue<Item>,
    classes: Mutex<Classes>,
    sight: Sight,
    tenure: Arc<Tenure>,
    metrics: Arc<Metrics>,
    secrets_followed: AtomicBool,
    /// How often in a row a stream's Job was there already though no watch tells of it.
    in_the_way: Mutex<HashMap<Key, u32>>,
    /// Enough is known, and this process is the one to act on it.
    deciding: AtomicBool,
    /// Something changed that decides whether to act.
    conduct: Notify,
    /// Since when each worker has been busy.
    busy: Mutex<Vec<Option<Instant>>>,
    /// Parts that ended though nobody asked them to.
    broken: Mutex<BTreeSet<&'static str>>,
    tasks: TaskTracker,
    /// Everything but the Lease ends with this.
    stopping: CancellationToken,
}

/// Runs the operator until it is told to stop: finishes what is under way, gives the Lease back.
pub async fn run(
    cluster: Arc<dyn Cluster>,
    config: Config,
    shutdown: CancellationToken,
) -> Result<()> {
    let operator = Operator::new(cluster, config, Ambient::system());
    operator.run(shutdown).await
}

impl Operator {
    pub fn new(cluster: Arc<dyn Cluster>, config: Config, ambient: Ambient) -> Arc<Operator> {
        let metrics = Arc::new(Metrics::new(config.legacy_metrics));
        let index = Arc::new(Mutex::new(Index::new(config.settings.clone())));
        let now = jiff::Timestamp::from_millisecond(ambient.now().millis()).unwrap_or_default();
        let tenure = Arc::new(match config.lease.enabled {
            true => Tenure::none(),
            false => Tenure::endless(now),
        });
        let acting =
            Acting { cluster: cluster.clone(), tenure: tenure.clone(), metrics: metrics.clone() };
        let workers = config.workers;
        Arc::new(Operator {
            config,
            hands: Hands { cluster: Arc::new(acting), index, ambient: ambient.clone() },
            queue: Queue::new(ambient),
            classes: Mutex::default(),
            sight: Sight::default(),
            tenure,
            metrics,
            secrets_followed: AtomicBool::new(false),
            in_the_way: Mutex::default(),
            deciding: AtomicBool::new(false),
            conduct: Notify::new(),
            busy: Mutex::new(vec![None; workers]),
            broken: Mutex::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// What is known of the cluster.
    pub fn index(&self) -> &Arc<Mutex<Index>> {
        &self.hands.index
    }

    /// All that it sees; everything, if there are none.
    pub fn namespaces(&self) -> &[String] {
        &self.config.namespaces
    }

    /// Everything has been listed once.
    pub fn is_ready(&self) -> bool {
        *self.sight.settled().borrow() && self.classes.lock().clear()
    }

    pub fn is_leading(&self) -> bool {
        self.tenure.until().is_some()
    }

    /// What is wrong with the process itself; nothing, if it is well.
    pub fn ailment(&self) -> Option<String> {
        if let Some(part) = self.broken.lock().first() {
            return Some(format!("{part} has ended"));
        }
        let stuck = |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() > STUCK);
        let stuck = self.busy.lock().iter().filter(|since| stuck(since)).count();
        (stuck > 0).then(|| format!("{stuck} workers are stuck"))
    }

    /// As text for Prometheus.
    pub fn metrics(&self) -> String {
        self.metrics.text(&self.hands.index, self.queue.depth())
    }

    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) -> Result<()> {
        let servers = crate::health::serve(&self, &self.config).await?;
        for unknown in &self.config.unknown {
            tracing::warn!(key = unknown, "a setting that means nothing here");
        }
        let lease = CancellationToken::new();
        let campaign = self.campaign(lease.clone());
        self.follow_all();
        let operator = self.clone();
        self.task("conductor", self.stopping.clone(), async move { operator.conduct().await });
        if let Some(url) = self.config.dogstatsd.clone().filter(|_| self.config.legacy_metrics) {
            let operator = self.clone();
            self.tasks.spawn(async move { operator.report(&url).await });
        }
        let workers = TaskTracker::new();
        for worker in 0..self.config.workers {
            workers.spawn(self.clone().work(worker));
        }
        workers.close();
        shutdown.cancelled().await;
        tracing::info!("stopping: what is under way is finished");
        self.stopping.cancel();
        self.queue.close();
        if tokio::time::timeout(STOP, workers.wait()).await.is_err() {
            tracing::warn!("a worker did not end in time");
        }
        lease.cancel();
        self.tasks.close();
        if let Some(campaign) = campaign {
            let _ = campaign.await;
        }
        if tokio::time::timeout(STOP, self.tasks.wait()).await.is_err() {
            tracing::warn!("a watch did not end in time");
        }
        servers.stop(self.config.probes_shutdown).await;
        Ok(())
    }

    fn campaign(self: &Arc<Self>, stop: CancellationToken) -> Option<tokio::task::JoinHandle<()>> {
        let config = &self.config.lease;
        if !config.enabled {
            return None;
        }
        let holder = match config.holder.as_str() {
            "" => format!("{}_{}", machine(), self.hands.ambient.id()),
            holder => holder.into(),
        };
        let namespace = match config.namespace.as_str() {
            "" => own_namespace(),
            namespace => namespace.into(),
        };
        let campaign = Campaign {
            cluster: self.hands.cluster.clone(),
            terms: Terms {
                place: Place::new(&namespace, &config.name),
                holder,
                duration: config.duration,
                act: config.renew_deadline,
                renew: config.retry_period,
            },
            ambient: self.hands.ambient.clone(),
            tenure: self.tenure.clone(),
        };
        let operator = self.clone();
        let ended = stop.clone();
        Some(self.tasks.spawn(async move {
            let ran = AssertUnwindSafe(campaign.run(stop)).catch_unwind().await;
            if ran.is_err() || !ended.is_cancelled() {
                operator.broken.lock().insert("the election");
            }
        }))
    }

    /// A part that must not end by itself.
    fn task(
        self: &Arc<Self>,
        name: &'static str,
        stop: CancellationToken,
        part: impl Future<Output = ()> + Send + 'static,
    ) {
        let operator = self.clone();
        self.tasks.spawn(async move {
            let ran = AssertUnwindSafe(part).catch_unwind().await;
            if ran.is_err() || !stop.is_cancelled() {
                tracing::error!(part = name, "a part of the operator has ended");
                operator.broken.lock().insert(name);
            }
        });
    }

    /// Opens the queue when this process is to act, and lets streams in when enough is known to
    /// decide about them; closes it when this process may no longer act.
    async fn conduct(self: Arc<Self>) {
        let (mut since, mut settled) = (self.tenure.since(), self.sight.settled());
        let mut leading = None;
        let mut sweep = tokio::time::interval(Duration::from_secs(60));
        loop {
            let leads = *since.borrow_and_update();
            if leads != leading {
                leading = leads;
                self.lead(leads);
            }
            let known = *settled.borrow_and_update() && self.classes.lock().listed();
            let before = self.deciding.swap(leads.is_some() && known, Ordering::SeqCst);
            if !before && self.deciding.load(Ordering::SeqCst) {
                let keys = self.hands.index.lock().everyone();
                tracing::info!(to_look_at = keys.len(), "acting");
                self.touched(keys, Lane::Normal);
            }
            tokio::select! {
                () = self.stopping.cancelled() => return,
                _ = since.changed() => {}
                _ = settled.changed() => {}
                () = self.conduct.notified() => {}
                _ = sweep.tick() => self.queue.sweep(),
            }
        }
    }

    fn lead(&self, since: Option<jiff::Timestamp>) {
        self.metrics.leads(since.is_some());
        self.hands.index.lock().leading_since = since;
        self.in_the_way.lock().clear();
        match since {
            None => self.queue.close(),
            Some(_) => {
                self.queue.open();
                self.all_classes();
            }
        }
    }

    async fn work(self: Arc<Self>, worker: usize) {
        loop {
            let (item, lane) = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                taken = self.queue.take() => taken,
            };
            let begun = Instant::now();
            self.busy.lock()[worker] = Some(begun);
            // One that makes us stumble, by whatever means, harms itself.
            let looked = AssertUnwindSafe(self.look(&item, lane)).catch_unwind().await;
            self.busy.lock()[worker] = None;
            let (outcome, acted) = match looked {
                Ok(looked) => (looked.outcome, looked.acted),
                Err(_) => {
                    tracing::error!(?item, "a look ended in a panic");
                    (Outcome::Retry("panic", Duration::from_secs(10)), true)
                }
            };
            if let Item::Stream(key) = &item {
                let label = match outcome {
                    Outcome::Rest(None) => "rest",
                    Outcome::Rest(Some(_)) => "later",
                    Outcome::Again(_) => "again",
                    Outcome::Retry(..) => "retry",
                };
                self.metrics.looked(&key.class, label, begun.elapsed());
            }
            self.queue.done(&item, outcome, acted);
        }
    }

    /// Counts the classes as the existing operator does; the one that acts, so that they are
    /// counted once.
    async fn report(&self, url: &str) {
        let mut wait = self.config.report_after;
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(wait) => wait = self.config.report_every,
            }
            if !self.is_leading() {
                continue;
            }
            let classes: Vec<_> = self.hands.index.lock().classes().cloned().collect();
            if let Err(error) = statsd::count(url, &classes).await {
                tracing::warn!(url, %error, "DogStatsD cannot be told");
            }
        }
    }
}

fn machine() -> String {
    let name = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    name.or_else(|| std::fs::read_to_string("/etc/hostname").ok().map(|name| name.trim().into()))
        .unwrap_or_else(|| "mainstay".into())
}

/// Where this process runs, if it is in a cluster.
fn own_namespace() -> String {
    let file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    match std::fs::read_to_string(file) {
        Ok(namespace) if !namespace.trim().is_empty() => namespace.trim().into(),
        _ => "default".into(),
    }
}
