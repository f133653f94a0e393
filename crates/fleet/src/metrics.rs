//! Metrics under the names of the existing service, so that its dashboards work, each with its
//! kind's prefix. No label names an instance: a scrape costs as much as there are phases and clusters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Error as Unwritable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kernel::telemetry::MetricsObserver;
use parking_lot::{Mutex, RwLock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric as _, NoLabelSet,
};
use prometheus_client::metrics::MetricType::{self, Gauge, Unknown};
use prometheus_client::metrics::histogram::Histogram;

use crate::Fleet;
use crate::model::cluster::{self, Cluster};
use crate::model::instance::Phase;
use crate::model::kind::Kind;
use crate::store::index::Operation;

/// Counters of this process.
#[derive(Default)]
pub struct Counts {
    requests: RwLock<HashMap<RequestLabels, Arc<RequestStats>>>,
    reconciles: Mutex<BTreeMap<String, ReconcileStats>>,
    /// By code, as in `KAFKAS-MGMT-36`.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// Labels of a request. The path is a template, so the label sets are few.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RequestLabels {
    method: &'static str,
    path: Arc<str>,
    code: u16,
}

struct RequestStats {
    count: AtomicU64,
    seconds: Histogram,
}

#[derive(Debug, Clone, Copy, Default)]
struct ReconcileStats {
    success: u64,
    failure: u64,
    last_s: f64,
}

/// The buckets of the existing service.
const DURATION_BOUNDS_S: [f64; 6] = [0.1, 1.0, 2.0, 5.0, 10.0, 30.0];

impl Counts {
    /// Counts an error that a client got.
    pub fn error(&self, code: String) {
        *self.errors.lock().entry(code).or_default() += 1;
    }

    /// Counts an attempt of a worker, by its outcome in the kernel's metrics.
    fn attempt(&self, kind: &str, outcome: &str, seconds: f64) {
        let mut reconciles = self.reconciles.lock();
        let stats = reconciles.entry(kind.to_owned()).or_default();
        match outcome {
            "done" | "requeue" => stats.success += 1,
            "retry" | "stopped" => stats.failure += 1,
            // Another process holds the lease and counts the attempt.
            _ => return,
        }
        stats.last_s = seconds;
    }

    /// Counts a request to the API of a kind. `path` is the route's template.
    pub fn request(&self, method: &'static str, path: Arc<str>, code: u16, took: Duration) {
        let labels = RequestLabels { method, path, code };
        let known = self.requests.read().get(&labels).cloned();
        let requests = known.unwrap_or_else(|| {
            let new = || {
                let seconds = Histogram::new(DURATION_BOUNDS_S);
                Arc::new(RequestStats { count: AtomicU64::new(0), seconds })
            };
            self.requests.write().entry(labels).or_insert_with(new).clone()
        });
        requests.count.fetch_add(1, Ordering::Relaxed);
        requests.seconds.observe(took.as_secs_f64());
    }
}

/// The fleet's collector and observer in the kernel's metrics.
pub struct Scrape(pub Arc<Fleet>);

impl std::fmt::Debug for Scrape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scrape")
    }
}

impl MetricsObserver for Scrape {
    fn attempt(&self, kind: &str, outcome: &'static str, seconds: f64) {
        self.0.counts.attempt(kind, outcome, seconds);
    }
}

type EncodeResult = Result<(), Unwritable>;

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let fleet = &self.0;
        let catalogue = fleet.catalogue();
        let mut page = ScrapeEncoder { fleet, encoder };
        let mut prefixes: BTreeMap<&str, Vec<&Kind>> = BTreeMap::new();
        for kind in catalogue.kinds.values() {
            prefixes.entry(&kind.file.metrics_prefix).or_default().push(kind);
        }
        for (prefix, kinds) in &prefixes {
            for kind in kinds {
                page.instances(prefix, kind.name())?;
            }
            page.clusters(prefix, kinds)?;
            page.reconciles(prefix, kinds)?;
        }
        page.requests()?;
        page.own()
    }
}

/// One scrape in progress.
struct ScrapeEncoder<'f, 'e> {
    fleet: &'f Fleet,
    encoder: DescriptorEncoder<'e>,
}

impl ScrapeEncoder<'_, '_> {
    /// Encodes a value for each set of labels. The existing service's counters lack the suffix that
    /// OpenMetrics requires of counters: their type is `unknown`.
    fn values<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        metric_type: MetricType,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> EncodeResult {
        let mut metric = self.encoder.encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        histograms: impl IntoIterator<Item = (L, Histogram)>,
    ) -> EncodeResult {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, histogram) in histograms {
            histogram.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Operations of one kind, or of the clusters.
    fn operations(&mut self, prefix: &str, kind: &str, operations: &[Operation]) -> EncodeResult {
        let counters = &self.fleet.index.counters;
        let counts = operations.iter().map(|operation| {
            ([("operation", operation.label())], counters.operations(kind, *operation))
        });
        let success = counts.clone().map(|(labels, count)| (labels, count.success));
        let name = format!("{prefix}_{kind}_operations_success_count");
        self.values(&name, "Operations that succeeded", Unknown, success)?;
        let total = counts.map(|(labels, count)| (labels, count.total));
        let name = format!("{prefix}_{kind}_operations_total_count");
        self.values(&name, "Operations that ended", Unknown, total)?;

        let name = format!("{prefix}_worker_{kind}_duration");
        let creations = ([("jobType", format!("{kind}_create"))], counters.creations(kind));
        self.histograms(&name, "Seconds from the creation to ready", [creations])
    }

    fn instances(&mut self, prefix: &str, kind: &str) -> EncodeResult {
        let counts = self.fleet.index.counts();
        let count = |phase| counts.get(&(kind.to_owned(), phase)).copied().unwrap_or(0);
        let by_phase = Phase::ALL.map(|phase| ([("status", phase.label())], count(phase)));
        let name = format!("{prefix}_{kind}_requests_status_count");
        self.values(&name, "Instances by status", Gauge, by_phase)?;

        let placed = self.fleet.index.placed();
        let of_kind = || placed.iter().filter(|((k, _, _), _)| k == kind);
        let info = of_kind().map(|((_, cluster, phase), count)| {
            ([("status", phase.label()), ("cluster_id", cluster.as_str())], *count)
        });
        let name = format!("{prefix}_{kind}_requests_current_status_info");
        self.values(&name, "Instances by status and cluster", Gauge, info)?;
        let clusters = self.fleet.index.clusters();
        let mut per_cluster: BTreeMap<&str, i64> = BTreeMap::new();
        for ((_, cluster, _), count) in of_kind() {
            *per_cluster.entry(cluster).or_default() += count;
        }
        let per_cluster = clusters.iter().map(|cluster| {
            let count = per_cluster.get(cluster.id.as_str()).copied().unwrap_or(0);
            (cluster_labels(cluster), count)
        });
        let name = format!("{prefix}_{kind}_per_cluster_count");
        self.values(&name, "Instances by cluster", Gauge, per_cluster)?;
        let operations = [Operation::Create, Operation::Deprovision, Operation::Delete];
        self.operations(prefix, kind, &operations)
    }

    fn clusters(&mut self, prefix: &str, kinds: &[&Kind]) -> EncodeResult {
        let clusters = self.fleet.index.clusters();
        let label = |status: cluster::Phase| match (status, kinds.first()) {
            (cluster::Phase::Waiting, Some(kind)) => kind.file.waiting_for_agent.as_str(),
            _ => status.label(),
        };
        let count = |status| clusters.iter().filter(|cluster| cluster.phase == status).count();
        let by_status =
            cluster::Phase::ALL.map(|status| ([("status", label(status))], count(status) as u64));
        let name = format!("{prefix}_cluster_status_count");
        self.values(&name, "Clusters by status", Gauge, by_status)?;

        let since = clusters.iter().map(|cluster| {
            let seconds = cluster.created_at.until(cluster.status.since).as_secs_f64();
            ((cluster_labels(cluster), [("status", label(cluster.phase))]), seconds)
        });
        let name = format!("{prefix}_cluster_status_since_created_in_seconds");
        let help = "From a cluster's creation until it got its status";
        self.values(&name, help, Gauge, since)?;
        self.operations(prefix, cluster::KIND, &[Operation::Create, Operation::Delete])?;

        let mut capacities = Vec::new();
        for cluster in &clusters {
            let types = kinds.iter().flat_map(|kind| {
                let types = kind.file.types.iter().map(|ty| ty.id.as_str());
                types.filter(|ty| cluster.spec.takes(kind.name(), ty))
            });
            for ty in types.collect::<BTreeSet<&str>>() {
                let used = self.fleet.index.used(&cluster.id, ty);
                // One limit may apply to all types together.
                let used_of_limit = match cluster.spec.limit {
                    Some(_) => self.fleet.index.used_total(&cluster.id),
                    None => used,
                };
                let max = cluster::limit(cluster, ty);
                let available = max.map(|max| (max - used_of_limit).max(0));
                let labels = [
                    ("region", cluster.spec.region.as_str()),
                    ("instance_type", ty),
                    ("cluster_id", &cluster.id),
                    ("cloud_provider", &cluster.spec.cloud_provider),
                ];
                capacities.push((labels, [max, Some(used), available]));
            }
        }
        let parts = [
            ("max", "Units that a cluster may hold"),
            ("used", "Units that a cluster holds"),
            ("available", "Units that a cluster has room for"),
        ];
        for (i, (what, help)) in parts.into_iter().enumerate() {
            let name = format!("{prefix}_cluster_status_capacity_{what}");
            let values = capacities.iter().filter_map(|(labels, all)| Some((*labels, all[i]?)));
            self.values(&name, help, Gauge, values)?;
        }
        Ok(())
    }

    /// Attempts of the workers that the existing service has: one for each kind.
    fn reconciles(&mut self, prefix: &str, kinds: &[&Kind]) -> EncodeResult {
        let reconciles = self.fleet.counts.reconciles.lock().clone();
        let is_kind = |kind: &str| self.fleet.catalogue().kinds.contains_key(kind);
        let included = |kind: &str| kinds.iter().any(|one| one.name() == kind) || !is_kind(kind);
        let stats: Vec<_> = reconciles.iter().filter(|(kind, _)| included(kind)).collect();
        type Value = fn(&ReconcileStats) -> u64;
        let counts: [(&str, &str, Value); 3] = [
            ("success", "Reconciliations that succeeded", |stats| stats.success),
            ("failure", "Reconciliations that are retried, or halted", |stats| stats.failure),
            ("errors", "Errors of reconciliations", |stats| stats.failure),
        ];
        let labels = |kind: &str| [("worker_type", kind.to_owned())];
        for (what, help, value) in counts {
            let name = format!("{prefix}_reconciler_{what}_count");
            self.values(
                &name,
                help,
                Unknown,
                stats.iter().map(|(kind, one)| (labels(kind), value(one))),
            )?;
        }
        let last = stats.iter().map(|(kind, one)| (labels(kind), one.last_s));
        let name = format!("{prefix}_reconciler_duration_in_seconds");
        self.values(&name, "Duration of the last reconciliation", Gauge, last)
    }

    fn requests(&mut self) -> EncodeResult {
        let requests = self.fleet.counts.requests.read().clone();
        let requests: BTreeMap<RequestLabels, Arc<RequestStats>> = requests.into_iter().collect();
        let labels = |RequestLabels { method, path, code }: &RequestLabels| {
            let (method, path) = ((*method).to_owned(), path.to_string());
            [("method", method), ("path", path), ("code", code.to_string())]
        };
        let counts = requests
            .iter()
            .map(|(request, stats)| (labels(request), stats.count.load(Ordering::Relaxed)));
        let help = "Requests answered by the kinds' APIs";
        self.values("api_inbound_request_count", help, Unknown, counts)?;
        let seconds =
            requests.iter().map(|(request, stats)| (labels(request), stats.seconds.clone()));
        let help = "Seconds until the head of a response";
        self.histograms("api_inbound_request_duration", help, seconds)
    }

    /// Metrics that the existing service does not have.
    fn own(&mut self) -> EncodeResult {
        let errors = self.fleet.counts.errors.lock().clone();
        let (name, help) = ("mainstay_fleet_errors", "Errors returned to clients");
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (code, count) in &errors {
            let labels = [("code", code.as_str())];
            let mut one = metric.encode_family(&labels)?;
            one.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        let now = self.fleet.ambient.now();
        let clusters = self.fleet.index.clusters();
        let silence = clusters.iter().filter_map(|cluster| {
            let last_seen = self.fleet.agent_liveness.last_seen(cluster)?;
            Some(([("cluster_id", cluster.id.as_str())], last_seen.until(now).as_secs_f64()))
        });
        let silence: Vec<_> = silence.collect();
        let help = "Since an agent's last contact";
        self.values("mainstay_fleet_agent_silence_seconds", help, Gauge, silence)
    }
}

fn cluster_labels(cluster: &Cluster) -> [(&'static str, &str); 2] {
    [("cluster_id", &cluster.id), ("external_id", &cluster.spec.external_id)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::driver::AttemptResult;

    #[test]
    fn every_outcome_of_an_attempt_but_a_lost_lease_is_counted() {
        let counts = Counts::default();
        for outcome in [
            AttemptResult::Done,
            AttemptResult::RequeueAt,
            AttemptResult::Pending,
            AttemptResult::Retry,
            AttemptResult::Stopped,
            AttemptResult::Lost,
        ] {
            counts.attempt("kafka", outcome.label(), 0.5);
        }
        let stats = counts.reconciles.lock()["kafka"];
        assert_eq!((stats.success, stats.failure, stats.last_s), (2, 2, 0.5));
    }
}
