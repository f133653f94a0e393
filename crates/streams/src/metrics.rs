//! The operator's metrics. Labels are bounded: classes, kinds, phases, verbs, resources; never a
//! stream.

mod legacy;
pub mod statsd;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use tokio::time::Instant;

use crate::decide::Action;
use crate::decide::action::{Mode, StopReason};
use crate::index::Index;
use crate::model::phase::Phase;
use crate::model::{ClassName, Key};

use legacy::Legacy;

/// Classes with labels of their own; further ones are labelled `other`.
const CLASSES_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InPhase {
    class: ClassName,
    kind: std::sync::Arc<str>,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClassName {
    class: ClassName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeftPhase {
    class: ClassName,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    class: ClassName,
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    class: ClassName,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ApiCall {
    pub verb: &'static str,
    pub resource: &'static str,
    pub status: &'static str,
}

#[derive(Debug, Clone)]
struct Seconds(&'static [f64]);

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// From a reconcile with nothing to do to one that waits for a slow API server.
const REQUEST_BUCKETS: Seconds =
    Seconds(&[0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0]);
/// From a phase of a moment to one of a week.
const PHASE_BUCKETS: Seconds =
    Seconds(&[0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 21_600.0, 86_400.0, 604_800.0]);

type Durations<L> = Family<L, Histogram, Seconds>;

fn durations<L: Clone + Eq + Hash>(buckets: Seconds) -> Durations<L> {
    Family::new_with_constructor(buckets)
}

pub struct Metrics {
    registry: Registry,
    legacy: Option<Legacy>,
    streams: Family<InPhase, Gauge>,
    phase_seconds: Durations<LeftPhase>,
    backfills_active: Gauge,
    backfills: Family<Ended, Counter>,
    restarts: Family<ByReason, Counter>,
    jobs: Family<ByReason, Counter>,
    reconciles: Family<Ended, Counter>,
    reconcile_seconds: Durations<OfClassName>,
    calls: Family<ApiCall, Counter>,
    call_seconds: Durations<ApiCall>,
    leading: Gauge,
    waiting: Gauge,
    busy: Gauge,
    /// Since when streams are in their phase, as observed by this process.
    entered: Mutex<HashMap<Key, (Phase, Instant)>>,
    classes: Mutex<HashSet<ClassName>>,
    /// Serialises scrapes, which reset and fill the gauges.
    scrape: Mutex<()>,
}

impl Metrics {
    pub fn new(legacy: bool) -> Metrics {
        let mut registry = Registry::with_prefix("mainstay_streams");
        let r = &mut registry;
        Metrics {
            streams: add(r, "count", "Streams by class, kind and phase", Family::default()),
            phase_seconds: add(
                r,
                "phase_seconds",
                "Time that streams spent in the phase that they left",
                durations(PHASE_BUCKETS),
            ),
            backfills_active: add(r, "backfills_active", "Running backfills", Gauge::default()),
            backfills: add(r, "backfills", "Ended backfills, by outcome", Family::default()),
            restarts: add(r, "restarts", "Stopped Jobs, by reason", Family::default()),
            jobs: add(r, "jobs_started", "Created Jobs, by purpose", Family::default()),
            reconciles: add(
                r,
                "attempts",
                "Attempts to reconcile a stream, by outcome",
                Family::default(),
            ),
            reconcile_seconds: add(
                r,
                "attempt_seconds",
                "Duration of an attempt",
                durations(REQUEST_BUCKETS),
            ),
            calls: add(r, "api_calls", "Requests to the API server", Family::default()),
            call_seconds: add(
                r,
                "api_call_seconds",
                "Duration of requests to the API server",
                durations(REQUEST_BUCKETS),
            ),
            leading: add(r, "leading", "Whether this process is the leader", Gauge::default()),
            waiting: add(r, "queue_waiting", "Streams waiting in the work queue", Gauge::default()),
            busy: add(r, "queue_busy", "Streams being reconciled", Gauge::default()),
            registry,
            legacy: legacy.then(Legacy::default),
            entered: Mutex::default(),
            classes: Mutex::default(),
            scrape: Mutex::default(),
        }
    }

    /// The label of a class: its name, or `other` beyond the limit.
    fn class(&self, name: &ClassName) -> ClassName {
        let mut classes = self.classes.lock();
        if classes.contains(name) || classes.len() < CLASSES_MAX {
            classes.insert(name.clone());
            name.clone()
        } else {
            "other".into()
        }
    }

    /// Counts an API request, with its duration if that is meaningful.
    pub fn api_call(&self, asked: ApiCall, took: Option<Duration>) {
        if let Some(legacy) = &self.legacy {
            legacy.api_call(&asked);
        }
        if let Some(took) = took {
            self.call_seconds.get_or_create(&asked).observe(took.as_secs_f64());
        }
        self.calls.get_or_create(&asked).inc();
    }

    pub fn reconciled(&self, class: &ClassName, outcome: &'static str, took: Duration) {
        let class = self.class(class);
        if let Some(legacy) = &self.legacy {
            legacy.reconciled(&class, outcome, took);
        }
        self.reconciles.get_or_create(&Ended { class: class.clone(), outcome }).inc();
        self.reconcile_seconds.get_or_create(&OfClassName { class }).observe(took.as_secs_f64());
    }

    pub fn set_leading(&self, leads: bool) {
        self.leading.set(leads.into());
    }

    /// Counts an action that was executed on a stream in the given phase.
    pub fn executed(&self, key: &Key, phase: Phase, action: &Action) {
        let class = self.class(&key.class);
        match action {
            Action::StartJob { mode, .. } => {
                let why = match mode {
                    Mode::Stream => "stream",
                    Mode::Backfill(_) => "backfill",
                };
                self.jobs.get_or_create(&ByReason { class, why }).inc();
            }
            Action::StopJob { why, .. } => {
                let why = match why {
                    StopReason::Suspended => "suspended",
                    StopReason::Changed => "changed",
                    StopReason::Backfill => "backfill",
                    StopReason::Ended => "ended",
                    StopReason::Failed => "failed",
                    StopReason::Backend => "backend",
                };
                self.restarts.get_or_create(&ByReason { class, why }).inc();
            }
            Action::CompleteRequest { .. } => {
                self.backfills.get_or_create(&Ended { class, outcome: "complete" }).inc();
            }
            Action::SetStatus(status) if status.phase != phase => {
                if phase == Phase::Backfilling && status.phase == Phase::Failed {
                    let ended = Ended { class: class.clone(), outcome: "failed" };
                    self.backfills.get_or_create(&ended).inc();
                }
                self.entered(key, class, phase, status.phase);
            }
            _ => {}
        }
    }

    fn entered(&self, key: &Key, class: ClassName, from: Phase, to: Phase) {
        let before = self.entered.lock().insert(key.clone(), (to, Instant::now()));
        if let Some((phase, since)) = before
            && phase == from
        {
            let left = LeftPhase { class, phase: from.name() };
            self.phase_seconds.get_or_create(&left).observe(since.elapsed().as_secs_f64());
        }
    }

    /// The metrics in the text format of Prometheus.
    pub fn text(&self, index: &Mutex<Index>, queue: (usize, usize)) -> String {
        let _one = self.scrape.lock();
        let counts = {
            let index = index.lock();
            self.backfills_active.set(index.running_backfills().try_into().unwrap_or(i64::MAX));
            let mut counts: BTreeMap<(ClassName, Phase), i64> = BTreeMap::new();
            for stream in index.streams() {
                *counts.entry((stream.key.class.clone(), stream.phase)).or_default() += 1;
            }
            self.entered.lock().retain(|key, _| index.stream(key).is_some());
            let classes: Vec<_> = index.classes().cloned().collect();
            (classes, counts)
        };
        self.streams.clear();
        for class in &counts.0 {
            let name = self.class(&class.name);
            for phase in Phase::ALL {
                let count = counts.1.get(&(class.name.clone(), phase)).copied().unwrap_or(0);
                let labels =
                    InPhase { class: name.clone(), kind: class.kind.clone(), phase: phase.name() };
                self.streams.get_or_create(&labels).inc_by(count);
            }
        }
        self.waiting.set(queue.0.try_into().unwrap_or(i64::MAX));
        self.busy.set(queue.1.try_into().unwrap_or(i64::MAX));
        let mut out = String::new();
        if let Some(legacy) = &self.legacy {
            legacy.write(&mut out, &counts.0, queue);
        }
        // Writing to a String cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

/// Registers a metric and returns it.
fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}
