//! Prometheus through its HTTP API, with the advisor's queries.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::prometheus::cluster::{
    Container, Gpu, Jvm, Kind, Load, Namespace, Quota, Resources, Workload,
};
use testkit::prometheus::{Cluster, History, Prometheus};

const MIB: f64 = 1024.0 * 1024.0;
const USAGE: &str = "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate";
const OWNERS: &str = "namespace_workload_pod:kube_pod_owner:relabel";
/// Between two samples, so that it does not matter which ends of a range belong to it.
const OFF_S: i64 = 60;

/// What is loaded is near to it: what is older than the retention is dropped.
fn now_s() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

fn web() -> Container {
    Container::new("app", Load::daily(0.4, 0.2).with_chance(0.1), Load::daily(200.0 * MIB, 64.0))
        .requests(0.5, 256.0 * MIB)
        .limits(1.0, 512.0 * MIB)
        .throttled(Load::steady(0.05))
}

fn trainer() -> Container {
    let jvm = Jvm { runtime: "OpenJDK".into(), vendor: "Temurin".into(), version: "21".into() };
    let gpu = Gpu {
        model: "NVIDIA-A100-SXM4-40GB".into(),
        cores: Load::steady(35.0),
        memory_copy: Load::steady(12.5),
        frame_buffer: Load::steady(9000.0),
    };
    let plain = Container::new("trainer", Load::steady(2.0), Load::steady(4096.0 * MIB));
    Container { gpu: Some(gpu), jvm: Some(jvm), ..plain }
}

fn shop(name: &str) -> Cluster {
    let small = |name: &str| Container::new(name, Load::steady(0.01), Load::steady(MIB));
    let workloads = vec![
        Workload::new(Kind::Deployment, "web", 2, vec![web(), small("proxy")]),
        Workload::new(Kind::StatefulSet, "db", 1, vec![small("postgres")]),
        Workload::new(Kind::DaemonSet, "agent", 1, vec![small("agent")]),
        Workload::new(Kind::Job, "report", 1, vec![small("report")]),
        Workload::new(Kind::ReplicaSet, "train", 1, vec![trainer()]),
    ];
    let requests = Resources { cpu: Some(8.0), memory: Some(1024.0 * MIB) };
    let quota = Some(Quota { requests, limits: Resources::default() });
    Cluster { seed: 7, namespaces: vec![Namespace { name: name.into(), quota, workloads }] }
}

/// The discovery of workloads and of containers, as the advisor does it.
async fn discovered(prometheus: &Prometheus, namespace: &str, time_s: i64) -> [Vec<Value>; 2] {
    let workloads = format!(
        "sum by (namespace, workload, workload_type) \
         (avg_over_time({OWNERS}{{workload!=\"\",namespace=\"{namespace}\"}}[15m]))"
    );
    let containers = format!(
        "sum by (container, image, workload, workload_type, namespace) \
         (avg_over_time(kube_pod_container_info{{container!=\"\",namespace=\"{namespace}\"}}[15m]) \
         * on (pod, namespace) group_left(workload, workload_type) \
         avg_over_time({OWNERS}{{workload!=\"\"}}[15m]))"
    );
    let mut found = [Vec::new(), Vec::new()];
    for (found, query) in found.iter_mut().zip([workloads, containers]) {
        let of = |labels: &Value, name: &str| labels.get(name).cloned().unwrap_or_default();
        for (labels, pods) in prometheus.query(&query, time_s).await {
            let [kind, name, container] =
                ["workload_type", "workload", "container"].map(|name| of(&labels, name));
            found.push(json!([kind, name, container, pods]));
        }
        found.sort_by_key(Value::to_string);
    }
    found
}

fn expected_discovery() -> [Vec<Value>; 2] {
    let workloads = json!([
        ["daemonset", "agent", null, 1.0],
        ["deployment", "web", null, 2.0],
        ["job", "report", null, 1.0],
        ["replicaset", "train", null, 1.0],
        ["statefulset", "db", null, 1.0]
    ]);
    let containers = json!([
        ["daemonset", "agent", "agent", 1.0],
        ["deployment", "web", "app", 2.0],
        ["deployment", "web", "proxy", 2.0],
        ["job", "report", "report", 1.0],
        ["replicaset", "train", "trainer", 1.0],
        ["statefulset", "db", "postgres", 1.0]
    ]);
    [workloads, containers].map(|list| list.as_array().unwrap().clone())
}

fn selected(metric: &str, container: &str) -> String {
    format!(
        "{metric}{{container!=\"\", container!=\"POD\", pod!=\"\", namespace=\"shop\", \
         container=\"{container}\"}}"
    )
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1.0)
}

/// The advisor's range query over all of it: what every bucket of 15 minutes says.
async fn buckets(prometheus: &Prometheus, query: &str, history: History) -> Vec<(i64, f64)> {
    let end_s = history.end_s + OFF_S;
    let range = (end_s - history.length_s, end_s);
    let mut found = prometheus.query_range(query, range, 900).await;
    assert_eq!(found.len(), 1, "{query}: {found:?}");
    found.remove(0).1
}

#[tokio::test(flavor = "multi_thread")]
async fn fifteen_days_answer_as_they_are_described_also_after_a_kill() {
    let Some(shared) = testkit::prometheus() else { return };
    let cluster = shop("shop");
    let history = History::fifteen_days(now_s() / 900 * 900 - 3_600);
    let own = shared.private_with(&cluster, history).await;
    let time_s = history.end_s + OFF_S;
    assert_eq!(discovered(&own, "shop", time_s).await, expected_discovery());

    let keys = [0, 1].map(|number| {
        let pod = cluster.namespaces[0].workloads[0].pod(number);
        cluster.key("shop", &pod, "app")
    });
    let app = web();
    for (outer, inner) in [("avg", "avg"), ("sum", "avg"), ("min", "min"), ("max", "max")] {
        let series = selected(USAGE, "app");
        let query = format!("{outer} by(container, namespace)({inner}_over_time({series}[15m]))");
        let found = buckets(&own, &query, history).await;
        assert_eq!(found.len(), 1441, "{query}");
        // The first reaches back before there was anything.
        for (time_s, value) in &found[1..] {
            let pods = keys.map(|key| {
                let samples = [0, 300, 600].map(|back| app.cpu.at(time_s - OFF_S - back, key));
                fold(inner, &samples)
            });
            let expected = fold(outer, &pods);
            assert!(near(*value, expected), "{query} at {time_s}: {value}, not {expected}");
        }
    }
    let throttle = selected("container_cpu_cfs_throttled_seconds_total", "app");
    let throttle = format!("sum by(container,namespace) (rate({throttle}[15m]))");
    let found = buckets(&own, &throttle, history).await;
    assert!(found[1..].iter().all(|(_, value)| (value - 0.1).abs() < 1e-6), "{found:?}");

    let expected = [
        (
            "avg by(container, namespace) (kube_pod_container_resource_requests{resource=\"cpu\",\
          unit=\"core\",namespace=\"shop\",container=\"app\"})",
            0.5,
        ),
        (
            "sum by(container,namespace) (kube_pod_container_resource_limits{resource=\"memory\",\
          unit=\"byte\",namespace=\"shop\",container=\"app\"})",
            1024.0 * MIB,
        ),
        (
            "max by(container, namespace) (max_over_time(container_memory_working_set_bytes{\
          namespace=\"shop\",container=\"trainer\"}[15m]))",
            4096.0 * MIB,
        ),
        (
            "min by(container, namespace) (min_over_time(container_memory_rss{\
          namespace=\"shop\",container=\"trainer\"}[15m]))",
            0.8 * 4096.0 * MIB,
        ),
        (
            "sum by (namespace) (kube_resourcequota{namespace=\"shop\",resource=\"requests.cpu\",\
          type=\"hard\"})",
            8.0,
        ),
        (
            "avg_over_time(sum by(namespace) ((kube_pod_status_phase{phase=\"Running\",\
          namespace=\"shop\"}))[15m:])",
            6.0,
        ),
        (
            "max by (Hostname,device,modelName,UUID,exported_container,exported_namespace) (\
          max_over_time(DCGM_FI_DEV_GPU_UTIL{exported_namespace=\"shop\",\
          exported_container=\"trainer\"}[15m]))",
            35.0,
        ),
        (
            "sum by(container, namespace, runtime, vendor, version)(jvm_info{namespace=\"shop\",\
          container=\"trainer\"})",
            1.0,
        ),
        (
            "sum by (namespace) (avg_over_time(kube_namespace_status_phase{namespace=\"shop\"}[15m]))",
            1.0,
        ),
        // When the comparison was evaluated, not when the sample was taken.
        (
            "max by(namespace,container) (last_over_time((timestamp(container_cpu_usage_seconds_total{\
          namespace=\"shop\", container=\"app\"} > 0))[15d:]))",
            time_s as f64,
        ),
    ];
    for (query, expected) in &expected {
        let found = own.query(query, time_s).await;
        let [(_, value)] = found.as_slice() else { panic!("{query}: {found:?}") };
        assert!(near(*value, *expected), "{query}: {value}, not {expected}");
    }

    let range = (time_s - history.length_s, time_s);
    let (status, body) = own.try_query_range(&selected(USAGE, "app"), range, 60).await;
    assert_eq!(status, 400);
    let error = body["error"].as_str().unwrap();
    assert!(error.contains("exceeded maximum resolution of 11,000 points"), "{error}");

    let before = buckets(&own, &throttle, history).await;
    own.server.kill().await;
    own.server.start().await;
    assert_eq!(buckets(&own, &throttle, history).await, before);
}

fn fold(how: &str, values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    match how {
        "sum" => sum,
        "avg" => sum / values.len() as f64,
        "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
        _ => values.iter().copied().fold(0.0, f64::max),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_record_what_the_loader_writes_for_them() {
    let Some(prometheus) = testkit::prometheus() else { return };
    let namespace = prometheus.name("shop");
    let history = History::two_hours(now_s());
    prometheus.write(&shop(&namespace), history).await;
    assert_eq!(discovered(&prometheus, &namespace, history.end_s).await, expected_discovery());
    // Had the loader given its series other labels, there were two of each from now on.
    let recorded = format!("max(timestamp({OWNERS}{{namespace=\"{namespace}\"}}))");
    let begun = Instant::now();
    loop {
        let last_s = prometheus.query(&recorded, now_s()).await;
        if last_s.iter().any(|(_, last_s)| *last_s > history.end_s as f64) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no rule was evaluated: {last_s:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(discovered(&prometheus, &namespace, now_s()).await, expected_discovery());
    let cpu = format!("count({USAGE}{{namespace=\"{namespace}\"}})");
    assert_eq!(prometheus.query(&cpu, now_s()).await[0].1, 8.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_there_after_a_kill_also_what_is_long_past() {
    let Some(shared) = testkit::prometheus() else { return };
    let own = shared.private().await;
    let (now, past) = (now_s(), now_s() - 10 * 86_400);
    own.write(&shop("shop"), History::two_hours(now)).await;
    own.write(&shop("shop"), History::two_hours(past)).await;
    own.server.kill().await;
    own.server.start().await;
    let pods = "sum by (namespace) (kube_pod_info{namespace=\"shop\"})";
    for time_s in [now, past] {
        assert_eq!(own.query(pods, time_s).await[0].1, 6.0);
    }
    assert!(own.query(pods, past + 3_600).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stands_still_goes_on_where_it_was() {
    let Some(shared) = testkit::prometheus() else { return };
    let own = shared.private().await;
    own.server.pause().await;
    let asking = own.query("vector(1)", now_s());
    tokio::pin!(asking);
    let waits = tokio::time::timeout(Duration::from_millis(200), &mut asking).await;
    assert!(waits.is_err(), "it answers although it stands still");
    own.server.resume().await;
    assert_eq!(asking.await[0].1, 1.0);
}
