//! What dashboards read, under the names of the existing service, each with its kind's prefix. No
//! label names an instance: the cost of a scrape is that of statuses and clusters.

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
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;

use crate::Fleet;
use crate::model::cluster::{self, Cluster};
use crate::model::instance::Phase;
use crate::model::kind::Kind;
use crate::store::index::Operation;

/// What is counted as it happens, by this process.
#[derive(Default)]
pub struct Counts {
    requests: RwLock<HashMap<RequestLabels, Arc<RequestStats>>>,
    looks: Mutex<BTreeMap<String, ReconcileStats>>,
    /// By code, as in `KAFKAS-MGMT-36`.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// Its path is a template: they are few.
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

/// As in the existing service.
const ANSWER_BOUNDS_S: [f64; 6] = [0.1, 1.0, 2.0, 5.0, 10.0, 30.0];

impl Counts {
    /// An error was told to a client.
    pub fn error(&self, code: &str) {
        let mut errors = self.errors.lock();
        match errors.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(errors.insert(code.to_owned(), 1)),
        }
    }

    /// Counts a request to the API of a kind. `path` is the route's template.
    pub fn request(&self, method: &'static str, path: Arc<str>, code: u16, took: Duration) {
        let labels_ = RequestLabels { method, path, code };
        let known = self.requests.read().get(&labels_).cloned();
        let requests = known.unwrap_or_else(|| {
            let new = || {
                let seconds = Histogram::new(ANSWER_BOUNDS_S);
                Arc::new(RequestStats { count: AtomicU64::new(0), seconds })
            };
            self.requests.write().entry(labels_).or_insert_with(new).clone()
        });
        requests.count.fetch_add(1, Ordering::Relaxed);
        requests.seconds.observe(took.as_secs_f64());
    }
}

/// The fleet as the kernel's metrics see it.
pub struct Scrape(pub Arc<Fleet>);

impl std::fmt::Debug for Scrape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scrape")
    }
}

impl MetricsObserver for Scrape {
    fn attempt(&self, kind: &str, outcome: &'static str, seconds: f64) {
        let mut looks = self.0.counts.looks.lock();
        let looks = looks.entry(kind.to_owned()).or_default();
        match outcome {
            "done" | "look_again" => looks.success += 1,
            "retry" | "stopped" => looks.failure += 1,
            // Another process has it, and counts it.
            _ => return,
        }
        looks.last_s = seconds;
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
            page.looks(prefix, kinds)?;
        }
        page.requests()?;
        page.own()
    }
}

/// One scrape on its way.
struct ScrapeEncoder<'f, 'e> {
    fleet: &'f Fleet,
    encoder: DescriptorEncoder<'e>,
}

impl ScrapeEncoder<'_, '_> {
    /// A value for each set of labels. The old counters have names that do not end as OpenMetrics
    /// wants it of counters: their type is `unknown`, and they are read as before.
    fn values<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        (name, help): (&str, &str),
        of: MetricType,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> EncodeResult {
        let mut metric = self.encoder.encode_descriptor(name, help, None, of)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Of one kind, or of the clusters.
    fn operations(&mut self, prefix: &str, kind: &str, of: &[Operation]) -> EncodeResult {
        let counters = &self.fleet.index.counters;
        let work =
            |one: &Operation| ([("operation", one.label())], counters.operations(kind, *one));
        let success = of.iter().map(work).map(|(labels, work)| (labels, work.success));
        let name = format!("{prefix}_{kind}_operations_success_count");
        self.values((&name, "Operations that succeeded"), MetricType::Unknown, success)?;
        let total = of.iter().map(work).map(|(labels, work)| (labels, work.total));
        let name = format!("{prefix}_{kind}_operations_total_count");
        self.values((&name, "Operations that ended"), MetricType::Unknown, total)?;

        let name = format!("{prefix}_worker_{kind}_duration");
        let help = "Seconds from the creation to ready";
        let of = MetricType::Histogram;
        let mut metric = self.encoder.encode_descriptor(&name, help, None, of)?;
        let job = format!("{kind}_create");
        counters.creations(kind).encode(metric.encode_family(&[("jobType", job.as_str())])?)
    }

    fn instances(&mut self, prefix: &str, kind: &str) -> EncodeResult {
        let counts = self.fleet.index.counts();
        let count = |status| counts.get(&(kind.to_owned(), status)).copied().unwrap_or(0);
        let by_status = Phase::ALL.map(|status| ([("status", status.label())], count(status)));
        let name = format!("{prefix}_{kind}_requests_status_count");
        self.values((&name, "Instances by status"), MetricType::Gauge, by_status)?;

        let placed = self.fleet.index.placed();
        let of_kind = || placed.iter().filter(|((of, _, _), _)| of == kind);
        let info = of_kind().map(|((_, cluster, status), count)| {
            ([("status", status.label()), ("cluster_id", cluster.as_str())], *count)
        });
        let name = format!("{prefix}_{kind}_requests_current_status_info");
        self.values((&name, "Instances by status and cluster"), MetricType::Gauge, info)?;
        let mut on: BTreeMap<&str, i64> = BTreeMap::new();
        of_kind().for_each(|((_, cluster, _), count)| *on.entry(cluster).or_default() += count);
        let clusters = self.fleet.index.clusters();
        let per_cluster = clusters.iter().map(|cluster| {
            let here = on.get(cluster.id.as_str()).copied().unwrap_or(0);
            (named(cluster), here)
        });
        let name = format!("{prefix}_{kind}_per_cluster_count");
        self.values((&name, "Instances by cluster"), MetricType::Gauge, per_cluster)?;
        self.operations(
            prefix,
            kind,
            &[Operation::Create, Operation::Deprovision, Operation::Delete],
        )
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
        self.values((&name, "Clusters by status"), MetricType::Gauge, by_status)?;

        let since = clusters.iter().map(|cluster| {
            let seconds = cluster.created_at.until(cluster.status.since).as_secs_f64();
            ((named(cluster), [("status", label(cluster.phase))]), seconds)
        });
        let name = format!("{prefix}_cluster_status_since_created_in_seconds");
        let help = "From a cluster's creation until it got its status";
        self.values((&name, help), MetricType::Gauge, since)?;
        self.operations(prefix, cluster::KIND, &[Operation::Create, Operation::Delete])?;

        let mut rooms = Vec::new();
        for cluster in &clusters {
            let types: BTreeSet<&str> = kinds
                .iter()
                .flat_map(|kind| kind.file.types.iter().map(move |of| (kind, of.id.as_str())))
                .filter(|(kind, of)| cluster.takes(kind.name(), of))
                .map(|(_, of)| of)
                .collect();
            rooms.extend(types.into_iter().map(|of| ClusterCapacity::new(self.fleet, cluster, of)));
        }
        type Value = fn(&ClusterCapacity<'_>) -> Option<i64>;
        let parts: [(&str, &str, Value); 3] = [
            ("max", "Units that a cluster may hold", |room| room.max),
            ("used", "Units that a cluster holds", |room| Some(room.used)),
            ("available", "Units that a cluster has room for", |room| room.available),
        ];
        for (what, help, value) in parts {
            let name = format!("{prefix}_cluster_status_capacity_{what}");
            let values = rooms.iter().filter_map(|room| Some((room.labels, value(room)?)));
            self.values((&name, help), MetricType::Gauge, values)?;
        }
        Ok(())
    }

    /// The workers, as far as they are like those that there were: one of each kind.
    fn looks(&mut self, prefix: &str, kinds: &[&Kind]) -> EncodeResult {
        let looks = self.fleet.counts.looks.lock().clone();
        let other = |kind: &str| self.fleet.catalogue().kinds.contains_key(kind);
        let wanted = |kind: &str| kinds.iter().any(|one| one.name() == kind) || !other(kind);
        let looks: Vec<_> = looks.iter().filter(|(kind, _)| wanted(kind)).collect();
        let each = |value: fn(&ReconcileStats) -> u64| {
            let one = move |(kind, looks): &(&String, &ReconcileStats)| {
                ([("worker_type", (*kind).clone())], value(looks))
            };
            looks.iter().map(one).collect::<Vec<_>>()
        };
        let of = MetricType::Unknown;
        let (success, failure) = (each(|looks| looks.success), each(|looks| looks.failure));
        let name = format!("{prefix}_reconciler_success_count");
        self.values((&name, "Looks that went well"), of, success)?;
        let name = format!("{prefix}_reconciler_failure_count");
        self.values((&name, "Looks that are tried again, or stopped"), of, failure.clone())?;
        let name = format!("{prefix}_reconciler_errors_count");
        self.values((&name, "Errors of looks"), of, failure)?;
        let last = looks.iter().map(|(kind, one)| ([("worker_type", kind.as_str())], one.last_s));
        let name = format!("{prefix}_reconciler_duration_in_seconds");
        self.values((&name, "How long the last look took"), MetricType::Gauge, last)
    }

    fn requests(&mut self) -> EncodeResult {
        let requests = self.fleet.counts.requests.read().clone();
        let requests: BTreeMap<RequestLabels, Arc<RequestStats>> = requests.into_iter().collect();
        let codes: Vec<String> = requests.keys().map(|labels_| labels_.code.to_string()).collect();
        let labels = |(labels_, code): (&RequestLabels, &String)| {
            let path = labels_.path.to_string();
            [("method", labels_.method.to_owned()), ("path", path), ("code", code.clone())]
        };
        let counts = requests.iter().zip(&codes).map(|((labels_, requests), code)| {
            (labels((labels_, code)), requests.count.load(Ordering::Relaxed))
        });
        let name = ("api_inbound_request_count", "Requests answered by the kinds' APIs");
        self.values(name, MetricType::Unknown, counts)?;
        let name = "api_inbound_request_duration";
        let help = "Seconds until the head of an answer";
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for ((labels_, requests), code) in requests.iter().zip(&codes) {
            requests.seconds.encode(metric.encode_family(&labels((labels_, code)))?)?;
        }
        Ok(())
    }

    /// What the existing service does not tell.
    fn own(&mut self) -> EncodeResult {
        let errors = self.fleet.counts.errors.lock().clone();
        let (name, help) = ("mainstay_fleet_errors", "Errors told to clients");
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (code, count) in &errors {
            let labels = [("code", code.as_str())];
            let mut one = metric.encode_family(&labels)?;
            one.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        let now = self.fleet.ambient.now();
        let clusters = self.fleet.index.clusters();
        let silent = clusters.iter().filter_map(|cluster| {
            let heard = self.fleet.agent_liveness.last_seen(cluster)?;
            Some(([("cluster_id", cluster.id.as_str())], heard.until(now).as_secs_f64()))
        });
        let silent: Vec<_> = silent.collect();
        let name = ("mainstay_fleet_agent_silence_seconds", "Since an agent was last heard of");
        self.values(name, MetricType::Gauge, silent)
    }
}

fn named(cluster: &Cluster) -> [(&'static str, &str); 2] {
    [("cluster_id", &cluster.id), ("external_id", &cluster.spec.external_id)]
}

/// What a cluster has room for, of one instance type.
struct ClusterCapacity<'a> {
    labels: [(&'static str, &'a str); 4],
    max: Option<i64>,
    used: i64,
    available: Option<i64>,
}

impl<'a> ClusterCapacity<'a> {
    fn new(fleet: &Fleet, cluster: &'a Cluster, instance_type: &'a str) -> ClusterCapacity<'a> {
        let used = fleet.index.used(&cluster.id, instance_type);
        let max = cluster.limit(instance_type);
        // One limit may be for all types.
        let of_limit = match cluster.spec.limit {
            Some(_) => fleet.index.used_total(&cluster.id),
            None => used,
        };
        ClusterCapacity {
            labels: [
                ("region", &cluster.spec.region),
                ("instance_type", instance_type),
                ("cluster_id", &cluster.id),
                ("cloud_provider", &cluster.spec.cloud_provider),
            ],
            max,
            used,
            available: max.map(|max| (max - of_limit).max(0)),
        }
    }
}
