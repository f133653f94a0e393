//! The cluster that the existing service was recorded with, in the place of its Prometheus: the
//! recorded namespaces, workloads and containers; and of some containers, what was measured of them.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::recorded::{Exchange, Pair};
use super::stand_in::{Reply, Seen, StandIn};
use advisor::model::measure::{Aggregate, Metric};

/// How long the data source keeps what was measured: 15 days, and as long as a test takes.
const KEPT_S: i64 = 15 * 24 * 3600 + 3600;

#[derive(Default)]
pub struct Cluster {
    containers: Vec<Labels>,
    /// What was measured, by namespace and container.
    measured: HashMap<(String, String), Measured>,
}

/// Namespace, workload, type, container, image.
type Labels = BTreeMap<&'static str, String>;

#[derive(Default)]
struct Measured(HashMap<(Metric, Aggregate), Vec<(i64, String)>>);

impl Cluster {
    /// All 100 containers, with measurements of those that have recorded ones.
    pub fn recorded() -> Cluster {
        let mut cluster = Cluster::default();
        let metadata = Exchange::read("bulk_get_include_metadata").json();
        let clusters = &metadata["metadata"]["datasources"]["prometheus-1"]["clusters"];
        for (namespace, found) in members(&clusters["default"]["namespaces"]) {
            for (_, workload) in members(&found["workloads"]) {
                for (_, container) in members(&workload["containers"]) {
                    cluster.containers.push(Labels::from([
                        ("namespace", namespace.clone()),
                        ("workload", text(&workload["workload_name"])),
                        ("workload_type", text(&workload["workload_type"])),
                        ("container", text(&container["container_name"])),
                        ("image", text(&container["container_image_name"])),
                    ]));
                }
            }
        }
        for name in Pair::NAMES {
            cluster.measure(&Pair::read(name));
        }
        cluster.measure_like_recorded();
        cluster
    }

    /// Containers whose answers were recorded without their measurements: of constant use, and with
    /// what their answers are about.
    fn measure_like_recorded(&mut self) {
        use Metric::{CpuLimit, CpuRequest, CpuThrottle, MemoryLimit, MemoryRequest};
        let steady = Pair::read("constmem").samples();
        let mut like = |container: &str, value: &dyn Fn(Metric, i64, &str) -> Option<String>| {
            let key = ("ns-00".to_owned(), container.to_owned());
            let measured = self.measured.entry(key).or_default();
            for (metric, aggregate, samples) in &steady {
                let samples = samples.iter().filter_map(|(before_end, was)| {
                    Some((*before_end, value(*metric, *before_end, was)?))
                });
                measured.0.insert((*metric, *aggregate), samples.collect());
            }
        };
        let configured =
            |metric| matches!(metric, CpuRequest | CpuLimit | MemoryRequest | MemoryLimit);
        like("norequest", &|metric, _, was| (!configured(metric)).then(|| was.to_owned()));
        like("threedays", &|_, before_end, was| {
            (before_end <= 3 * 24 * 3600).then(|| was.to_owned())
        });
        like("onecore", &|_, _, was| Some(was.to_owned()));
        like("optlim", &|metric, _, _| {
            let value = match metric {
                CpuRequest => "0.25",
                CpuThrottle => "0",
                Metric::CpuUsage | CpuLimit => "0.5",
                MemoryRequest => "52428800",
                _ => "104857600",
            };
            Some(value.to_owned())
        });
    }

    /// Only the containers of recorded pairs that are a data source's.
    pub fn of_pairs(datasource: &str) -> Cluster {
        let mut cluster = Cluster::default();
        for pair in Pair::NAMES.map(Pair::read) {
            if !text(&pair.expected["experiment_name"]).starts_with(&format!("{datasource}|")) {
                continue;
            }
            let object = &pair.expected["kubernetes_objects"][0];
            let container = &object["containers"][0];
            cluster.containers.push(Labels::from([
                ("namespace", text(&object["namespace"])),
                ("workload", text(&object["name"])),
                ("workload_type", text(&object["type"])),
                ("container", text(&container["container_name"])),
                ("image", text(&container["container_image_name"])),
            ]));
            cluster.measure(&pair);
        }
        cluster
    }

    fn measure(&mut self, pair: &Pair) {
        let object = &pair.expected["kubernetes_objects"][0];
        let container = text(&object["containers"][0]["container_name"]);
        let measured = self.measured.entry((text(&object["namespace"]), container)).or_default();
        for (metric, aggregate, samples) in pair.samples() {
            measured.0.insert((metric, aggregate), samples);
        }
    }

    pub async fn start(self) -> StandIn {
        StandIn::new(move |seen| self.reply(seen)).await
    }

    pub fn reply(&self, seen: &Seen) -> Reply {
        let query = seen.query();
        let tests = tests(query);
        let mut chosen: Vec<&Labels> = self.containers.iter().collect();
        chosen.retain(|labels| tests.iter().all(|test| test.holds(labels)));
        let by: &[&'static str] = if query == "up" || query.starts_with("count(") {
            &[]
        } else if query.contains("kube_namespace_status_phase") {
            &["namespace"]
        } else if query.contains("kube_pod_container_info") {
            &["container", "image", "namespace", "workload", "workload_type"]
        } else if query.contains("namespace_workload_pod") && !query.contains("container") {
            &["namespace", "workload", "workload_type"]
        } else if ["jvm_info", "DCGM", "resourcequota", "kube_pod_info"]
            .iter()
            .any(|name| query.contains(name))
        {
            return matrix(Vec::new());
        } else if query.contains("container=") || query.contains("container!=\"\", container!=") {
            &["container", "namespace"]
        } else {
            &["namespace"]
        };
        let mut groups: BTreeMap<Vec<&str>, &Labels> = BTreeMap::new();
        for labels in chosen {
            groups.entry(by.iter().map(|name| labels[name].as_str()).collect()).or_insert(labels);
        }
        let metric = |labels: &Labels| {
            by.iter().map(|name| ((*name).to_owned(), Value::from(labels[name].as_str()))).collect()
        };
        let metric = |labels: &Labels| Value::Object(metric(labels));
        if seen.is_range() && !query.contains("status_phase{") {
            let series = groups.values();
            return matrix(
                series
                    .map(|labels| json!({ "metric": metric(labels), "values": self.values(seen, labels) }))
                    .collect(),
            );
        }
        if seen.is_range() {
            let end: i64 = seen.form["end"].parse().unwrap();
            let one =
                |labels: &&Labels| json!({ "metric": metric(labels), "values": [[end, "1"]] });
            return matrix(groups.values().map(one).collect());
        }
        let now = jiff::Timestamp::now().as_second();
        let one = |labels: &&Labels| json!({ "metric": metric(labels), "value": [now, "1"] });
        answer("vector", groups.values().map(one).collect())
    }

    /// What was recorded, moved to the range that is asked for; of other containers, a constant.
    fn values(&self, seen: &Seen, labels: &Labels) -> Value {
        let end: i64 = seen.form["end"].parse().unwrap();
        let key = (labels["namespace"].clone(), labels["container"].clone());
        let what = super::recorded::metric(seen.query());
        let Some((measured, what)) = self.measured.get(&key).zip(what) else {
            return (0..=16).map(|back| json!([end - (16 - back) * 900, "0.25"])).collect();
        };
        let samples = measured.0.get(&what).map(Vec::as_slice).unwrap_or_default();
        let oldest = jiff::Timestamp::now().as_second() - KEPT_S;
        let kept = samples.iter().filter(|(before_end, _)| end - before_end >= oldest);
        kept.map(|(before_end, value)| json!([end - before_end, value])).collect()
    }
}

fn members(value: &Value) -> impl Iterator<Item = (String, &Value)> {
    value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn matrix(series: Vec<Value>) -> Reply {
    answer("matrix", series)
}

fn answer(kind: &str, result: Vec<Value>) -> Reply {
    Reply::Json(json!({ "status": "success", "data": { "resultType": kind, "result": result } }))
}

/// A matcher of a selector.
struct Test {
    label: &'static str,
    negated: bool,
    values: Vec<String>,
}

impl Test {
    fn holds(&self, labels: &Labels) -> bool {
        self.values.contains(&labels[self.label]) != self.negated
    }
}

fn tests(query: &str) -> Vec<Test> {
    let mut found = Vec::new();
    for label in ["namespace", "workload", "container"] {
        for (operator, negated) in [("=~\"", false), ("!~\"", true), ("=\"", false)] {
            let mut rest = query;
            while let Some((before, after)) = rest.split_once(&format!("{label}{operator}")) {
                let (values, after) = after.split_once('"').unwrap();
                rest = after;
                if before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                    continue;
                }
                let values = values.replace('\\', "").split('|').map(str::to_owned).collect();
                found.push(Test { label, negated, values });
            }
        }
    }
    found
}
