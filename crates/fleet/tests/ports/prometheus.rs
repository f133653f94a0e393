//! Metrics from a real Prometheus. The namespaces of a cluster stand for instances.

use std::collections::BTreeSet;

use fleet::model::exposition::exposition;
use fleet::model::series::{Selector, Series};
use fleet::ports::prometheus::{Config, Metrics, Prometheus};
use kernel::Class;
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History};

use crate::{outbound, whole};

const MEMORY: &str = "container_memory_working_set_bytes";
const PODS: &str = "kube_pod_info";

fn now_s() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

fn instance(name: &str, memory: f64) -> Namespace {
    let container = |name: &str| Container::new(name, Load::steady(0.5), Load::steady(memory));
    let containers = vec![container("broker"), container("canary")];
    let workloads = vec![Workload::new(Kind::StatefulSet, "kafka", 2, containers)];
    Namespace { name: name.into(), quota: None, workloads }
}

fn port(url: &str) -> Prometheus {
    let config = Config { url: url.into(), timeout_s: 10, ..Config::default() };
    Prometheus::new(&config, &outbound()).unwrap()
}

fn selector(namespace: &str) -> Selector {
    Selector {
        metrics: vec![MEMORY.into(), PODS.into()],
        labels: vec![("namespace".into(), namespace.into())],
        without: Vec::new(),
    }
}

fn named<'a>(series: &'a [Series], name: &str) -> Vec<&'a Series> {
    series.iter().filter(|one| one.labels["__name__"] == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_series_of_the_instance_are_read() {
    let Some(server) = testkit::prometheus() else { return };
    let [mine, other] = ["mine", "mine2"].map(|name| server.name(name));
    // A name that would be PromQL if it were not quoted.
    let odd = format!("{mine}\"}} or {{namespace=~\".*\\\n");
    let namespaces = vec![instance(&mine, 7.0), instance(&other, 8.0), instance(&odd, 9.0)];
    let history = History { end_s: now_s(), length_s: 600, step_s: 60 };
    server.write(&Cluster { seed: 1, namespaces }, history).await;
    let metrics = port(server.server.get(""));

    for (name, memory) in [(&mine, 7.0), (&other, 8.0), (&odd, 9.0)] {
        let found = metrics.instant(&selector(name)).await.unwrap();
        assert!(found.iter().all(|one| one.labels["namespace"] == *name), "{found:?}");
        assert_eq!(named(&found, PODS).len(), 2);
        let used = named(&found, MEMORY);
        assert_eq!(used.len(), 4);
        for one in used {
            let [(time_ms, value)] = one.values[..] else { panic!("{one:?}") };
            assert_eq!(value, memory);
            assert!((time_ms / 1000 - now_s()).abs() < 60, "{time_ms}");
        }
    }

    let hidden = [("container".to_owned(), "can.*".to_owned())];
    let some = Selector { without: hidden.to_vec(), ..selector(&mine) };
    let found = metrics.instant(&some).await.unwrap();
    let left: BTreeSet<&str> =
        named(&found, MEMORY).iter().map(|one| one.labels["container"].as_str()).collect();
    assert_eq!(left, BTreeSet::from(["broker"]));

    let one = Selector { metrics: vec![MEMORY.into()], ..some };
    let found = metrics.range(&one, history.end_s - 300, history.end_s, 60).await.unwrap();
    assert_eq!(found.len(), 2);
    for series in &found {
        let times: Vec<i64> = series.values.iter().map(|(time_ms, _)| *time_ms).collect();
        let expected: Vec<i64> = (0..=5).map(|i| (history.end_s - 300 + i * 60) * 1000).collect();
        assert_eq!(times, expected);
        assert!(series.values.iter().all(|(_, value)| *value == 7.0), "{series:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_value_finds_nothing() {
    let Some(server) = testkit::prometheus() else { return };
    let mine = server.name("mine");
    let history = History { end_s: now_s(), length_s: 120, step_s: 60 };
    let namespaces = vec![instance(&mine, 7.0)];
    server.write(&Cluster { seed: 1, namespaces }, history).await;
    let metrics = port(server.server.get(""));
    assert!(!metrics.instant(&selector(&mine)).await.unwrap().is_empty());
    for hostile in [
        ".*",
        ".+",
        "|",
        "\"} or {namespace!=\"",
        "\",namespace=~\".*",
        "\\\",namespace=~\".*",
        "\\",
        "\n",
        "\r\t\u{0}",
        "`",
        "'",
        "#",
        "} #",
        "$1",
        "ä\u{202e}\u{1f40d}",
        &format!("{mine}|x"),
        &format!("{}.*", &mine[..3]),
        &format!("{mine} "),
        &mine.to_uppercase(),
        &"x".repeat(100_000),
    ] {
        let found = metrics.instant(&selector(hostile)).await;
        let found = found.unwrap_or_else(|error| panic!("{hostile}: {}", whole(&error)));
        assert!(found.is_empty(), "{hostile}: {found:?}");
        let range = metrics.range(&selector(hostile), now_s() - 60, now_s(), 30).await.unwrap();
        assert!(range.is_empty(), "{hostile}");
    }
    let nothing = Selector { metrics: Vec::new(), ..selector(&mine) };
    assert!(metrics.instant(&nothing).await.unwrap().is_empty());
    let everyone = Selector { labels: Vec::new(), ..selector(&mine) };
    assert_eq!(metrics.instant(&everyone).await.unwrap_err().class(), Class::Terminal);
    let no_metric = Selector { metrics: vec!["up or vector(1)".into()], ..selector(&mine) };
    assert_eq!(metrics.instant(&no_metric).await.unwrap_err().class(), Class::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exposition_can_be_scraped() {
    let Some(server) = testkit::prometheus() else { return };
    let mine = server.name("mi\"ne\\");
    let history = History { end_s: now_s(), length_s: 120, step_s: 60 };
    let namespaces = vec![instance(&mine, 3.0 * 1024.0 * 1024.0)];
    server.write(&Cluster { seed: 1, namespaces }, history).await;
    let found = port(server.server.get("")).instant(&selector(&mine)).await.unwrap();
    let text = exposition(&found);
    assert!(text.contains(&format!("# TYPE {MEMORY} gauge\n")), "{text}");
    assert_eq!(text.matches(" 3.145728e+06\n").count(), 4, "{text}");

    let mut promtool = tokio::process::Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(std::process::Stdio::piped());
    let mut child = promtool.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, text.as_bytes()).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    // 1: it cannot be parsed. 3: it can, with style warnings.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{errors}\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_prometheus_and_the_setting_to_check() {
    let Some(server) = testkit::prometheus() else { return };
    let metrics = port(server.server.get(""));
    for (start_s, end_s, step_s) in [(0, 259_200, 1), (0, 60, 0), (60, 0, 1)] {
        let error = metrics.range(&selector("x"), start_s, end_s, step_s).await.unwrap_err();
        assert_eq!(error.class(), Class::Invalid);
        assert!(error.to_string().starts_with("interval: "), "{error}");
    }
    // The most points that are allowed here are allowed by Prometheus too.
    let now = now_s();
    assert!(metrics.range(&selector("x"), now - 10_999, now, 1).await.unwrap().is_empty());
    assert!(metrics.range(&selector("x"), now - 259_200, now, 24).await.unwrap().is_empty());

    let lost = port(&format!("{}/nowhere", server.server.get("")));
    let error = lost.instant(&selector("x")).await.unwrap_err();
    let text = whole(&error);
    assert!(text.contains("Prometheus") && text.contains("check fleet.prometheus.url"), "{text}");
    let away = port("http://127.0.0.1:9").instant(&selector("x")).await.unwrap_err();
    assert_eq!(away.class(), Class::Transient);
    let bad = Config { url: "nonsense".into(), ..Config::default() };
    assert_eq!(Prometheus::new(&bad, &outbound()).err().unwrap().class(), Class::Invalid);
}
