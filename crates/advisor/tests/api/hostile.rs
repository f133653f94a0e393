//! Requests that nobody in their right mind sends: each gets an answer that says what is wrong, and
//! nothing else.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use testkit::stores::{self, Fresh};
use tokio::runtime::Runtime;

use crate::support::server::{Answer, Server, config};
use crate::support::small::Small;
use crate::support::stand_in::StandIn;

fn container_experiment() -> Value {
    json!([{
        "version": "v2.0", "experiment_name": "e", "cluster_name": "default", "mode": "monitor",
        "target_cluster": "local", "datasource": "p", "experiment_type": "container",
        "performance_profile": "profile", "metadata_profile": "profile",
        "kubernetes_objects": [{
            "type": "deployment", "name": "web", "namespace": "shop",
            "containers": [{ "container_image_name": "nginx:1", "container_name": "nginx" }],
        }],
        "trial_settings": { "measurement_duration": "15min" },
        "recommendation_settings": { "threshold": "0.1" },
    }])
}

fn results() -> Value {
    let metric = |name: &str| {
        let info = json!({ "sum": 1, "avg": 1, "min": 1, "max": 1, "format": "cores" });
        json!({ "name": name, "results": { "metadata": {}, "aggregation_info": info } })
    };
    json!([{
        "version": "v2.0", "experiment_name": "remote",
        "interval_start_time": "2023-05-27T17:00:00.000Z",
        "interval_end_time": "2023-05-27T17:15:00.000Z",
        "kubernetes_objects": [{
            "type": "deployment", "name": "web", "namespace": "shop",
            "containers": [{
                "container_name": "nginx", "container_image_name": "nginx:1",
                "metrics": [metric("cpuUsage"), metric("memoryUsage"), metric("memoryRSS")],
            }],
        }],
    }])
}

struct Stage {
    server: Server,
    _source: StandIn,
    _fresh: Fresh,
}

impl Stage {
    async fn new() -> Stage {
        let small = Small::of(1);
        let source = StandIn::new(move |seen| small.reply(seen)).await;
        let fresh = stores::memory().await.unwrap();
        let server = Server::start(&fresh, &config(&[("p", &source.url)])).await;
        let stage = Stage { server, _source: source, _fresh: fresh };
        let mut remote = container_experiment();
        remote[0]["experiment_name"] = "remote".into();
        remote[0]["target_cluster"] = "remote".into();
        assert_eq!(stage.send("POST", "/createExperiment", &remote.to_string()).await.status, 201);
        stage
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.server.call(method, path, body).await
    }

    /// The message of an error.
    async fn refused(&self, method: &str, path: &str, body: &str) -> String {
        let answer = self.send(method, path, body).await;
        let shown: String = body.chars().take(80).collect();
        let status = answer.status;
        assert!((400..500).contains(&status), "{method} {path} {shown}: {status} {}", answer.text);
        assert_eq!(answer.body["httpcode"], status, "{}", answer.text);
        assert_eq!(answer.body["status"], "ERROR", "{}", answer.text);
        assert!(answer.text.len() < 5000, "{} bytes", answer.text.len());
        let message = match answer.body["data"][0]["errors"][0]["message"].as_str() {
            Some(message) => message,
            None => answer.body["message"].as_str().unwrap(),
        };
        message.to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_not_what_they_should_be_are_refused() {
    let stage = Stage::new().await;
    let deep = "[".repeat(100_000);
    let deep_objects = r#"[{"experiment_name":"#.repeat(50_000);
    let many = format!("[{}1]", "1,".repeat(400_000));
    let large = format!("[\"{}\"]", "x".repeat(5 << 20));
    let bodies = [
        "",
        "{",
        "[",
        "nonsense",
        "null",
        "7",
        "\"text\"",
        "{}",
        "[1]",
        "[null]",
        "[[]]",
        "[{}]",
        "[NaN]",
        r#"[{"experiment_name":"\u0000"}]"#,
        r#"[{"experiment_name":1e999}]"#,
        "[{}] x",
        &deep,
        &deep_objects,
        &many,
        &large,
    ];
    for body in bodies {
        for (method, path) in [
            ("POST", "/createExperiment"),
            ("DELETE", "/createExperiment"),
            ("POST", "/updateResults"),
        ] {
            assert!(!stage.refused(method, path, body).await.is_empty());
        }
        if !["", "null", "{}"].contains(&body) {
            stage.refused("GET", "/listExperiments", body).await;
        }
    }
    stage.refused("POST", "/createExperiment", "[]").await;
    stage.refused("DELETE", "/createExperiment", "[]").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_names_the_field() {
    let stage = Stage::new().await;
    let long = "x".repeat(1_000_000);
    let object = "/0/kubernetes_objects/0";
    let table = [
        ("/0/experiment_name", json!(long)),
        ("/0/experiment_name", json!("a\u{7}b")),
        ("/0/experiment_name", json!({})),
        ("/0/cluster_name", json!(long)),
        ("/0/datasource", json!([])),
        ("/0/recommendation_settings/threshold", json!("NaN")),
        ("/0/recommendation_settings/threshold", json!(-0.1)),
        ("/0/trial_settings/measurement_duration", json!("forever")),
        (&format!("{object}/name"), json!("a\nb")),
        (&format!("{object}/containers"), json!("nginx")),
        (&format!("{object}/containers/0/container_name"), json!("")),
    ];
    for (pointer, value) in table {
        let mut body = container_experiment();
        *body.pointer_mut(pointer).unwrap() = value;
        let message = stage.refused("POST", "/createExperiment", &body.to_string()).await;
        let field = pointer.rsplit('/').next().unwrap();
        assert!(message.contains(field), "{pointer}: {message}");
    }
    let metric = format!("{object}/containers/0/metrics/0");
    let table = [
        ("/0/experiment_name", json!(long)),
        ("/0/interval_end_time", json!("9999999-01-01T00:00:00Z")),
        ("/0/interval_end_time", json!("1901-01-01T00:00:00Z")),
        (&format!("{metric}/name"), json!("\u{202e}")),
        (&format!("{metric}/results/aggregation_info/max"), json!("NaN")),
        (&format!("{metric}/results/aggregation_info/max"), json!("Infinity")),
        (&format!("{metric}/results/aggregation_info/max"), json!(-1e300)),
        (&format!("{metric}/results/aggregation_info/max"), json!("")),
        (&format!("{metric}/results/aggregation_info/format"), json!(long)),
        (&format!("{metric}/results/aggregation_info"), json!([])),
        (&format!("{object}/containers/0/metrics"), json!(vec![1; 10_000])),
    ];
    for (pointer, value) in table {
        let mut body = results();
        *body.pointer_mut(pointer).unwrap() = value;
        let message = stage.refused("POST", "/updateResults", &body.to_string()).await;
        let field = pointer.rsplit('/').next().unwrap();
        assert!(message.contains(field), "{pointer}: {message}");
    }
    // Nothing of it was saved.
    assert_eq!(stage.send("POST", "/updateResults", &results().to_string()).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_are_not_what_they_should_be_are_refused() {
    let stage = Stage::new().await;
    let created = container_experiment().to_string();
    assert_eq!(stage.send("POST", "/createExperiment", &created).await.status, 201);
    let long = "x".repeat(20_000);
    let control = "a%00b%0A";
    let end = "interval_end_time=2026-01-01T00:00:00Z";
    for (method, path, named) in [
        ("GET", "/listExperiments?latest=perhaps", "latest"),
        ("GET", "/listExperiments?results=1", "results"),
        ("GET", "/listExperiments?expriment_name=e", "expriment_name"),
        ("GET", "/listExperiments?experiment_name=", "not valid"),
        ("GET", &format!("/listExperiments?experiment_name={control}"), "not valid"),
        ("GET", &format!("/listExperiments?experiment_name={long}"), "not valid"),
        ("GET", "/listExperiments?experiment_name=e&rm=true", "not valid"),
        ("GET", "/listRecommendations?rm=2", "rm"),
        ("GET", "/listRecommendations?latest=%ff", "latest"),
        ("GET", &format!("/listRecommendations?monitoring_end_time={long}"), "timestamp"),
        ("GET", "/listRecommendations?monitoring_end_time=2026-13-01T00:00:00Z", "timestamp"),
        ("GET", "/listRecommendations?monitoring_end_time=2026-01-01T00:00:00Z", "timestamp"),
        ("POST", "/generateRecommendations?experiment_name=%20", "experiment_name"),
        ("POST", &format!("/generateRecommendations?experiment_name={control}"), "experiment_name"),
        ("POST", "/generateRecommendations?experiment_name=remote", "/updateRecommendations"),
        ("POST", &format!("/generateRecommendations?experiment_name=e&job_id={control}"), "job_id"),
        ("POST", &format!("/generateRecommendations?experiment_name=e&job_id={long}"), "job_id"),
        ("POST", "/generateRecommendations?experiment_name=e&interval_end_time=1", "timestamp"),
        (
            "POST",
            &format!(
                "/generateRecommendations?experiment_name=e&{end}&interval_start_time=2027-01-01T00:00:00Z"
            ),
            "Start time",
        ),
        (
            "POST",
            &format!(
                "/generateRecommendations?experiment_name=e&{end}&interval_start_time=2025-01-01T00:00:00Z"
            ),
            "15 days",
        ),
        (
            "POST",
            &format!("/updateRecommendations?experiment_name=e&{end}"),
            "/generateRecommendations",
        ),
        (
            "POST",
            &format!("/updateRecommendations?experiment_name=remote&{end}"),
            "interval_end_time",
        ),
        ("POST", "/updateRecommendations?experiment_name=remote", "interval_end_time is mandatory"),
    ] {
        let message = stage.refused(method, path, "").await;
        let path: String = path.chars().take(100).collect();
        assert!(message.contains(named), "{path}: {message}");
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Any JSON, with what is likely to be taken for something else.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        any::<String>().prop_map(Value::from),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T00:00:00Z".prop_map(Value::from),
        Just(json!("x".repeat(10_000))),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("(name|metrics|namespace|avg|[a-z]{0,3})", inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The places in a body.
fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(i, item)| pointers(item, format!("{at}/{i}"), found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, item)| pointers(item, format!("{at}/{key}"), found));
        }
        _ => {}
    }
    found.push(at);
}

/// Sends a good body with something else at one of its places.
fn replaced(path: &str, good: &Value) {
    let stage = RUNTIME.block_on(Stage::new());
    let mut places = Vec::new();
    pointers(good, String::new(), &mut places);
    let place = prop::sample::select(places);
    let mut runner = TestRunner::new(Config::with_cases(400));
    let outcome = runner.run(&(place, anything()), |(place, value)| {
        let mut body = good.clone();
        *body.pointer_mut(&place).unwrap() = value;
        let answer = RUNTIME.block_on(stage.send("POST", path, &body.to_string()));
        prop_assert!([201, 400, 409].contains(&answer.status), "{place}: {}", answer.text);
        prop_assert!(answer.body["message"].is_string(), "{place}: {}", answer.text);
        Ok(())
    });
    outcome.unwrap();
    // It is as well as before.
    let listed = RUNTIME.block_on(stage.send("GET", "/listExperiments?rm=true&results=true", ""));
    assert_eq!((listed.status, listed.body[0]["experiment_name"].as_str()), (200, Some("remote")));
}

#[test]
fn an_experiment_with_anything_in_it_is_created_or_refused() {
    replaced("/createExperiment", &container_experiment());
}

#[test]
fn results_with_anything_in_them_are_saved_or_refused() {
    replaced("/updateResults", &results());
}
