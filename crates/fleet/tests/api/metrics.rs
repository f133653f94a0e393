//! An instance's metrics, without a Prometheus and from a real one.

use fleet::ports::prometheus;
use serde_json::json;
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History};

use crate::stage::{Answer, KAFKA, Stage, eventually};

fn path(id: &str, rest: &str) -> String {
    KAFKA.path(&format!("/{id}/metrics/{rest}"))
}

fn says(answer: &Answer) -> (u16, u32) {
    (answer.status, answer.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_prometheus_lists_are_empty_and_bad_parameters_are_rejected() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "one").await;
    let now = stage.get("bob", &path(&id, "query")).await;
    assert_eq!((now.status, now.body), (200, json!({"kind": "MetricsInstantQueryList", "id": id})));
    let range = path(&id, "query_range?duration=5&interval=30");
    let range = stage.get("bob", &range).await;
    assert_eq!(
        (range.status, range.body),
        (200, json!({"kind": "MetricsRangeQueryList", "id": id}))
    );
    let text = stage.get("service-account", &path(&id, "federate")).await;
    assert_eq!((text.status, text.text.as_str()), (200, ""));
    assert_eq!(text.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let varies = text.headers.get_all("vary").iter();
    let varies = varies.filter(|by| by.as_bytes().eq_ignore_ascii_case(b"accept-encoding"));
    assert_eq!(varies.count(), 1, "{:?}", text.headers);
    assert!(!text.header("x-operation-id").is_empty());
    for query in [
        "",
        "?duration=abc&interval=30",
        "?duration=5",
        "?duration=0&interval=30",
        "?duration=4321&interval=30",
        "?duration=5&interval=10801",
        "?duration=5&interval=-1",
    ] {
        let answer = stage.get("bob", &path(&id, &format!("query_range{query}"))).await;
        assert_eq!(says(&answer), (400, 21), "{query}: {}", answer.text);
    }
    for rest in ["query", "query_range?duration=5&interval=30", "federate"] {
        assert_eq!(says(&stage.get("mallory", &path(&id, rest)).await), (404, 7));
        assert_eq!(stage.get("", &path(&id, rest)).await.status, 401);
    }
    assert_eq!(stage.get("service-account", &path(&id, "query")).await.status, 401);
}

const MEMORY: &str = "container_memory_working_set_bytes";

/// The kind of Kafkas, but with metrics that the loaded cluster has: the instance's name is that of
/// a container.
fn kind() -> String {
    let text = include_str!("../../../../kinds/kafka.yaml");
    let begin = text.find("\nmetrics:").unwrap();
    let end = begin + text[begin..].find("\n# How it runs").unwrap();
    let metrics = format!(
        "\nmetrics:\n  label: container\n  namespace: true\n  without: {{ pod: '.*-1' }}\n  labels: [pod]\n  series: [{MEMORY}, kube_pod_info]\n"
    );
    format!("{}{metrics}{}", &text[..begin], &text[end..])
}

fn namespace(name: String, memory: f64) -> Namespace {
    let container = |name: &str| Container::new(name, Load::steady(0.5), Load::steady(memory));
    let workload =
        Workload::new(Kind::StatefulSet, "kafka", 2, vec![container("broker"), container("other")]);
    Namespace { name, quota: None, workloads: vec![workload] }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_from_prometheus_and_are_the_instances_alone() {
    let Some(server) = testkit::prometheus() else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kafka.yaml"), kind()).unwrap();
    let url = server.server.get("").to_owned();
    let stage = Stage::configured(|config| {
        config.kinds_dir = Some(dir.path().into());
        config.prometheus = prometheus::Config { url, ..Default::default() };
    })
    .await;
    let mine = stage.create_ready(KAFKA, "alice", "broker").await;
    // Another organisation's has the same name.
    let theirs = stage.create_ready(KAFKA, "mallory", "broker").await;
    let now_s = stage.app.ambient.now().seconds();
    let namespaces =
        vec![namespace(format!("kafka-{mine}"), 7.0), namespace(format!("kafka-{theirs}"), 9.0)];
    let history = History { end_s: now_s, length_s: 600, step_s: 60 };
    server.write(&Cluster { seed: 1, namespaces }, history).await;

    for (who, id, memory) in [("bob", &mine, 7), ("mallory", &theirs, 9)] {
        let now = stage.get(who, &path(id, "query")).await;
        let [one] = now.items() else { panic!("{}", now.text) };
        let labels = json!({"__name__": MEMORY, "container": "broker", "pod": "kafka-0"});
        assert_eq!((&one["metric"], &one["value"]), (&labels, &json!(memory)), "{}", now.text);
        assert!(one["timestamp"].is_i64());
        let range = stage.get(who, &path(id, "query_range?duration=5&interval=60")).await;
        let [one] = range.items() else { panic!("{}", range.text) };
        let values = one["values"].as_array().unwrap();
        assert!(
            values.len() >= 5 && values.iter().all(|one| one["value"] == memory),
            "{}",
            range.text
        );
        let text = stage.get(who, &path(id, "federate")).await.text;
        let sample = format!("{MEMORY}{{container=\"broker\",pod=\"kafka-0\"}} {memory}\n");
        assert_eq!(text, format!("# TYPE {MEMORY} gauge\n{sample}"));
    }
    let some = stage.get("bob", &path(&mine, &format!("query?filters=up&filters={MEMORY}"))).await;
    assert_eq!(some.items().len(), 1);
    for nothing in ["query?filters=up", "query?filters=kube_node_info%7B%7D"] {
        let answer = stage.get("bob", &path(&mine, nothing)).await;
        assert_eq!((answer.status, answer.items().len()), (200, 0), "{}", answer.text);
    }
    let fine = stage.get("bob", &path(&mine, "query_range?duration=4320&interval=1")).await;
    assert_eq!(says(&fine), (400, 21), "more points than Prometheus gives: {}", fine.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_detailed_health_names_a_system_that_is_away_and_the_server_stays_ready() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let stage = Stage::configured(|config| {
        let url = format!("http://{closed}");
        config.prometheus = prometheus::Config { url, ..Default::default() };
    })
    .await;
    let check = async |name: &str| {
        let health = stage.get("", "/api/v1/self/liveliness?type=detailed").await;
        let checks = health.body["checks"].as_array().unwrap();
        let failed = checks.iter().any(|check| check["status"] == "failed");
        let status = if failed { "degraded" } else { "success" };
        assert_eq!((health.status, &health.body["status"]), (200, &status.into()));
        let found = checks.iter().find(|check| check["name"] == name);
        found.map(|check| check["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(check("Prometheus").await.as_deref(), Some("success"), "it was not called yet");
    assert_eq!(check("fleet index").await.as_deref(), Some("success"));
    assert_eq!(check("Keycloak").await, None, "it is not configured");
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    eventually("its breaker opens", async || {
        stage.get("alice", &KAFKA.path(&format!("/{id}/metrics/query"))).await;
        check("Prometheus").await.as_deref() == Some("failed")
    })
    .await;
    assert_eq!(stage.get("", "/api/v1/self/readiness").await.status, 200);
}
