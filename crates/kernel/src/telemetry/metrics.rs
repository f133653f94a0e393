//! Metrics. Every process, and every test, has its own registry; there is no global one.
//!
//! Labels are bounded: routes are templates, statuses are classes, and a label that a caller's
//! input could reach stops growing at [`SERIES_MAX`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use crate::log::LogHeads;
use crate::outbound::breaker::Phase;
use crate::store::WorkCount;
use crate::telemetry::build;

/// The most label sets per metric; later ones are counted as `other`.
const SERIES_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    method: &'static str,
    route: Arc<str>,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: &'static str,
    route: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    kind: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    system: String,
    operation: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Target {
    system: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Depth {
    kind: String,
    state: &'static str,
    paused: bool,
    failing: bool,
}

#[derive(Debug, Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        // 100 µs (a point read) to 30 s (a slow outside system).
        Histogram::new([
            0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
            10.0, 30.0,
        ])
    }
}

type Latency<L> = Family<L, Histogram, Seconds>;

/// Receives attempts, for a domain that counts them under its own names. Called within attempts, so
/// it must be quick.
pub trait MetricsObserver: Send + Sync + 'static {
    fn attempt(&self, kind: &str, outcome: &'static str, seconds: f64);
}

pub struct Metrics {
    registry: Registry,
    observers: RwLock<Vec<Arc<dyn MetricsObserver>>>,
    /// Metrics of the domains.
    domains: Mutex<Registry>,
    requests: Family<Request, Counter>,
    request_seconds: Latency<Route>,
    in_flight: Gauge,
    connections: Gauge,
    commits: Counter,
    changes: Counter,
    batch: Histogram,
    commit_seconds: Histogram,
    attempts: Family<Attempt, Counter>,
    attempt_seconds: Latency<Kind>,
    wake_seconds: Histogram,
    calls: Family<Call, Counter>,
    call_seconds: Latency<Target>,
    breakers: Family<Target, Gauge>,
    /// The number of label sets of calls and breakers.
    series: AtomicUsize,
    depth: Family<Depth, Gauge>,
    event_seq: Gauge,
    audit_seq: Gauge,
    started: Gauge,
    resident_bytes: Gauge,
    /// One scrape at a time resets and fills the depth gauges.
    scrape: Mutex<()>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("mainstay");
        let r = &mut registry;
        let build = vec![("version", build::VERSION), ("revision", build::REVISION)];
        let batch = Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0]);
        r.register("build", "What is running", Info::new(build));
        Metrics {
            requests: add(r, "http_requests", "Requests answered", Family::default()),
            request_seconds: latency(
                r,
                "http_request_seconds",
                "Time until the head of the answer",
            ),
            in_flight: add(r, "http_in_flight", "Requests being answered", Gauge::default()),
            connections: add(r, "http_connections", "Open connections", Gauge::default()),
            commits: add(r, "store_commits", "Batches committed", Counter::default()),
            changes: add(r, "store_changes", "Changes within those batches", Counter::default()),
            batch: add(r, "store_batch_changes", "Changes per batch", batch),
            commit_seconds: seconds(r, "store_commit_seconds", "Time to commit a batch"),
            attempts: add(
                r,
                "driver_attempts",
                "Attempts to reconcile an object, by result",
                Family::default(),
            ),
            attempt_seconds: latency(r, "driver_attempt_seconds", "Duration of an attempt"),
            wake_seconds: seconds(r, "driver_wake_seconds", "From due to claimed"),
            calls: add(r, "outbound_calls", "Calls to other systems", Family::default()),
            call_seconds: latency(r, "outbound_call_seconds", "Time of a call"),
            breakers: add(
                r,
                "outbound_breaker_state",
                "0 closed, 1 half open, 2 open",
                Family::default(),
            ),
            depth: add(r, "queue_rows", "Rows of the queue", Family::default()),
            event_seq: add(r, "events_head", "Number of the newest event", Gauge::default()),
            audit_seq: add(r, "audit_head", "Number of the newest audit entry", Gauge::default()),
            started: add(r, "started", "1 once start-up is over", Gauge::default()),
            resident_bytes: add(r, "resident_bytes", "Memory in use", Gauge::default()),
            series: AtomicUsize::new(0),
            scrape: Mutex::default(),
            observers: RwLock::default(),
            domains: Mutex::default(),
            registry,
        }
    }
}

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn seconds(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    add(registry, name, help, Seconds.new_metric())
}

fn latency<L>(registry: &mut Registry, name: &str, help: &str) -> Latency<L>
where
    L: EncodeLabelSet + Clone + std::hash::Hash + Eq + std::fmt::Debug + Send + Sync + 'static,
{
    add(registry, name, help, Family::new_with_constructor(Seconds))
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// Registers metrics of a domain, whose names get no prefix. A
    /// [`prometheus_client::collector::Collector`] runs at every scrape; it must not block, nor
    /// register more.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.domains.lock());
    }

    /// Adds an observer of attempts.
    pub fn add_observer(&self, domain: Arc<dyn MetricsObserver>) {
        self.observers.write().push(domain);
    }

    /// Counts a request; returns the method as its label. `route` is the template, as in
    /// `/api/v1/objects/{kind}/{id}`.
    pub fn request(
        &self,
        method: &str,
        route: Arc<str>,
        status: u16,
        took: Duration,
    ) -> &'static str {
        let method = known_method(method);
        self.request_seconds
            .get_or_create(&Route { method, route: route.clone() })
            .observe(took.as_secs_f64());
        let status = status_class(status);
        self.requests.get_or_create(&Request { method, route, status }).inc();
        method
    }

    /// Counts a request as in flight until the returned value is dropped.
    pub fn in_flight(&self) -> InUse<'_> {
        InUse::of(&self.in_flight)
    }

    /// Counts a connection as open until the returned value is dropped.
    pub fn connection(&self) -> InUse<'_> {
        InUse::of(&self.connections)
    }

    /// A batch of `changes` was committed.
    pub fn commit(&self, changes: usize, seconds: f64) {
        self.commits.inc();
        self.changes.inc_by(changes as u64);
        self.batch.observe(changes as f64);
        self.commit_seconds.observe(seconds);
    }

    /// The driver ran an attempt for an object of this kind.
    pub fn attempt(&self, kind: &str, outcome: &'static str, seconds: f64) {
        self.observers.read().iter().for_each(|one| one.attempt(kind, outcome, seconds));
        self.attempts.get_or_create(&Attempt { kind: kind.into(), outcome }).inc();
        self.attempt_seconds.get_or_create(&Kind { kind: kind.into() }).observe(seconds);
    }

    /// How long after its due time work was claimed.
    pub fn wake(&self, seconds: f64) {
        self.wake_seconds.observe(seconds);
    }

    /// Another system was called.
    pub fn outbound(&self, system: &str, operation: &str, outcome: &'static str, seconds: f64) {
        let mut call = Call { system: system.into(), operation: operation.into(), outcome };
        if self.calls.get(&call).is_none() && self.no_room() {
            (call.system, call.operation) = ("other".into(), "other".into());
        }
        self.call_seconds.get_or_create(&Target { system: call.system.clone() }).observe(seconds);
        self.calls.get_or_create(&call).inc();
    }

    /// Whether the label sets of calls are exhausted; if not, takes one more.
    fn no_room(&self) -> bool {
        self.series.fetch_add(1, Ordering::Relaxed) >= SERIES_MAX
    }

    pub fn breaker(&self, system: &str, phase: Phase) {
        let mut label = Target { system: system.into() };
        if self.breakers.get(&label).is_none() && self.no_room() {
            label.system = "other".into();
        }
        self.breakers.get_or_create(&label).set(match phase {
            Phase::Closed => 0,
            Phase::HalfOpen => 1,
            Phase::Open => 2,
        });
    }

    /// Marks start-up as complete for `/api/v1/self/started`.
    pub fn set_started(&self) {
        self.started.set(1);
    }

    pub fn started(&self) -> bool {
        self.started.get() == 1
    }

    /// Sets the gauges of the queue and the logs.
    pub fn store(&self, counts: &[WorkCount], head: &LogHeads) {
        let _one_at_a_time = self.scrape.lock();
        self.depth.clear();
        for count in counts.iter().take(SERIES_MAX) {
            let WorkCount { kind, state, paused, failing, rows } = count;
            let depth = Depth {
                kind: kind.clone(),
                state: state.label(),
                paused: *paused,
                failing: *failing,
            };
            self.depth.get_or_create(&depth).inc_by(*rows);
        }
        self.event_seq.set(head.event_seq);
        self.audit_seq.set(head.audit_seq);
    }

    /// Everything, in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        if let Some(bytes) = resident_bytes() {
            self.resident_bytes.set(bytes);
        }
        let mut out = String::with_capacity(16 * 1024);
        let in_memory = "writing to a string cannot fail";
        text::encode_registry(&mut out, &self.registry).expect(in_memory);
        text::encode_registry(&mut out, &self.domains.lock()).expect(in_memory);
        text::encode_eof(&mut out).expect(in_memory);
        out
    }
}

/// Adds one to a gauge for as long as it lives.
pub struct InUse<'a>(&'a Gauge);

impl InUse<'_> {
    fn of(gauge: &Gauge) -> InUse<'_> {
        gauge.inc();
        InUse(gauge)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or("other")
}

fn status_class(status: u16) -> &'static str {
    match status {
        ..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500.. => "5xx",
    }
}

/// From `/proc` on Linux; elsewhere the gauge stays at zero.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
    use prometheus_client::metrics::gauge::ConstGauge;

    use super::*;
    use crate::queue::State;

    #[test]
    fn what_was_counted_can_be_read_back() {
        let metrics = Metrics::new();
        metrics.request("GET", "/api/v1/x".into(), 404, Duration::from_millis(3));
        metrics.request("BREW", "unmatched".into(), 200, Duration::from_millis(3));
        metrics.commit(7, 0.002);
        metrics.attempt("widget", "done", 0.01);
        metrics.outbound("dns", "upsert", "ok", 0.1);
        metrics.breaker("dns", Phase::Open);
        let flight = metrics.in_flight();
        let text = metrics.encode();
        for line in [
            r#"mainstay_http_requests_total{method="GET",route="/api/v1/x",status="4xx"} 1"#,
            r#"mainstay_http_requests_total{method="other",route="unmatched",status="2xx"} 1"#,
            "mainstay_store_changes_total 7",
            r#"mainstay_driver_attempts_total{kind="widget",outcome="done"} 1"#,
            r#"mainstay_outbound_calls_total{system="dns",operation="upsert",outcome="ok"} 1"#,
            r#"mainstay_outbound_breaker_state{system="dns"} 2"#,
            "mainstay_http_in_flight 1",
            "mainstay_started 0",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        drop(flight);
        metrics.set_started();
        let text = metrics.encode();
        assert!(text.contains("mainstay_http_in_flight 0") && text.contains("mainstay_started 1"));
    }

    /// How often it was scraped.
    #[derive(Debug, Default)]
    struct Scrapes(AtomicUsize);

    impl Collector for Scrapes {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            let scrapes = ConstGauge::new(self.0.fetch_add(1, Ordering::Relaxed) as i64 + 1);
            let kind = scrapes.metric_type();
            scrapes.encode(encoder.encode_descriptor("scrapes", "So far", None, kind)?)
        }
    }

    #[test]
    fn a_domain_counts_under_its_own_names_and_may_be_asked_at_every_scrape() {
        let metrics = Metrics::new();
        let made = Counter::<u64>::default();
        metrics.register(|registry| {
            registry.register("fleet_made", "Made", made.clone());
            registry.register_collector(Box::new(Scrapes::default()));
        });
        made.inc();
        for scrape in 1..3 {
            let text = metrics.encode();
            for line in ["\nfleet_made_total 1\n", &format!("\nscrapes {scrape}\n")] {
                assert!(text.contains(line), "{line} is not in\n{text}");
            }
            assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
        }
    }

    impl MetricsObserver for Mutex<Vec<String>> {
        fn attempt(&self, kind: &str, outcome: &'static str, _: f64) {
            self.lock().push(format!("{kind} {outcome}"));
        }
    }

    #[test]
    fn an_observer_receives_attempts() {
        let (metrics, received) = (Metrics::new(), Arc::new(Mutex::new(Vec::new())));
        metrics.attempt("widget", "retry", 0.1);
        metrics.add_observer(received.clone());
        metrics.attempt("widget", "done", 0.1);
        assert_eq!(*received.lock(), ["widget done"]);
    }

    #[test]
    fn a_system_too_many_is_counted_as_other() {
        let metrics = Metrics::new();
        for n in 0..SERIES_MAX + 10 {
            metrics.outbound(&format!("s{n}"), "get", "ok", 0.1);
        }
        let text = metrics.encode();
        let other = r#"outbound_calls_total{system="other",operation="other",outcome="ok"} 10"#;
        assert!(text.contains(other), "{text}");
        assert_eq!(text.matches("outbound_calls_total{").count(), SERIES_MAX + 1);
    }

    #[test]
    fn the_depth_of_a_queue_that_emptied_is_gone_from_the_next_scrape() {
        let metrics = Metrics::new();
        let count = WorkCount {
            kind: "widget".into(),
            state: State::Ready,
            paused: false,
            failing: true,
            rows: 4,
        };
        metrics.store(&[count], &LogHeads::default());
        assert!(metrics.encode().contains(
            r#"queue_rows{kind="widget",state="ready",paused="false",failing="true"} 4"#
        ));
        metrics.store(&[], &LogHeads::default());
        assert!(!metrics.encode().contains("queue_rows{"));
    }
}
