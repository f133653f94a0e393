//! What dashboards read: the names, their values after a life, and that ours asks for nothing else.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::callers::CLUSTER;
use crate::sign_in::token;
use crate::stage::{DINOSAUR, EXTERNAL_ID, KAFKA, Stage, eventually};

async fn scrape(stage: &Stage) -> String {
    let answer = stage.get("", "/metrics").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

/// The value of a sample, written as it is in a scrape.
fn value(scrape: &str, sample: &str) -> Option<f64> {
    let line = scrape.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    line.parse().ok()
}

fn says(scrape: &str, prefix: &str, samples: &[(String, f64)]) {
    for (sample, expected) in samples {
        let sample = format!("{prefix}{sample}");
        let found = value(scrape, &sample);
        assert_eq!(found, Some(*expected), "{sample} in\n{scrape}");
    }
}

fn samples(of: &[(&str, f64)]) -> Vec<(String, f64)> {
    of.iter().map(|(sample, value)| ((*sample).to_owned(), *value)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_counted_under_the_names_that_dashboards_know() {
    let stage = Stage::new().await;
    for (api, prefix, name) in
        [(KAFKA, "kas_fleet_manager_", "kafka"), (DINOSAUR, "fleet_manager_", "dinosaur")]
    {
        let id = stage.create_ready(api, "alice", "one").await;
        let broken = stage.create(api, "alice", "two").await;
        let condition =
            json!({"type": "Ready", "status": "False", "reason": "Error", "message": "no"});
        let agent = stage.agent(api);
        let agent = agent
            .saying(|item| (item["id"] == *broken).then(|| json!({"conditions": [condition]})));
        agent.until(&broken, "failed").await;
        let (path, body) = (api.path("?async=true"), json!({"name": "one"}));
        assert_eq!(stage.call("alice", "POST", &path, &body).await.code(), 36);

        let text = scrape(&stage).await;
        says(
            &text,
            &format!("{prefix}{name}_"),
            &samples(&[
                (r#"requests_status_count{status="ready"}"#, 1.0),
                (r#"requests_status_count{status="failed"}"#, 1.0),
                (r#"requests_status_count{status="suspended"}"#, 0.0),
                (r#"operations_success_count{operation="create"}"#, 1.0),
                (r#"operations_total_count{operation="create"}"#, 2.0),
                (r#"operations_total_count{operation="deprovision"}"#, 0.0),
            ]),
        );
        let place = format!(r#"cluster_id="{CLUSTER}",external_id="{EXTERNAL_ID}""#);
        let room = |of: &str| {
            format!(
                r#"cluster_status_capacity_{of}{{region="us-east-1",instance_type="standard",cluster_id="{CLUSTER}",cloud_provider="aws"}}"#
            )
        };
        // Both kinds are on it.
        let used = value(&text, &format!("{prefix}{}", room("used"))).unwrap();
        says(
            &text,
            prefix,
            &[
                (format!(r#"worker_{name}_duration_count{{jobType="{name}_create"}}"#), 1.0),
                (format!("{name}_per_cluster_count{{{place}}}"), 2.0),
                (
                    format!(
                        r#"{name}_requests_current_status_info{{status="ready",cluster_id="{CLUSTER}"}}"#
                    ),
                    1.0,
                ),
                (r#"cluster_status_count{status="ready"}"#.into(), 2.0),
                (room("max"), 1_000_000.0),
                (room("available"), 1_000_000.0 - used),
            ],
        );
        assert!(used >= 2.0, "{used}");
        let path = api.path("");
        says(
            &text,
            "",
            &[
                (
                    format!(
                        r#"api_inbound_request_count{{method="POST",path="{path}",code="202"}}"#
                    ),
                    2.0,
                ),
                (
                    format!(
                        r#"api_inbound_request_duration_count{{method="POST",path="{path}",code="409"}}"#
                    ),
                    1.0,
                ),
                (format!(r#"mainstay_fleet_errors_total{{code="{}-36"}}"#, api.codes), 1.0),
            ],
        );

        for id in [&id, &broken] {
            let path = api.path(&format!("/{id}?async=true"));
            assert_eq!(stage.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
            stage.agent(api).make_gone(id).await;
        }
        stage.get("alice", &api.path("")).await;
        let text = scrape(&stage).await;
        says(
            &text,
            &format!("{prefix}{name}_"),
            &samples(&[
                (r#"requests_status_count{status="ready"}"#, 0.0),
                (r#"requests_status_count{status="deleting"}"#, 0.0),
                (r#"operations_success_count{operation="deprovision"}"#, 2.0),
                (r#"operations_total_count{operation="delete"}"#, 2.0),
            ]),
        );
        says(&text, prefix, &[(format!("{name}_per_cluster_count{{{place}}}"), 0.0)]);
        for id in [&id, &broken] {
            assert!(!text.contains(id.as_str()), "an instance is in a label:\n{text}");
        }
        let looks = format!(r#"{prefix}reconciler_success_count{{worker_type="{name}"}}"#);
        eventually("a look is counted", async || {
            value(&scrape(&stage).await, &looks).is_some_and(|count| count > 0.0)
        })
        .await;
    }
    let text = scrape(&stage).await;
    assert!(text.ends_with("# EOF\n"));
    let others = text.lines().filter(|line| line.starts_with("# TYPE"));
    let (all, distinct): (Vec<_>, BTreeSet<_>) = (others.clone().collect(), others.collect());
    assert_eq!(all.len(), distinct.len(), "a name is there twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_created_once_however_often_its_agent_comes_and_goes() {
    let stage = Stage::new().await;
    let id = "0123456789abcdefghijklmnopqrstuv";
    let body = json!({
        "cluster_id": id, "cluster_ingress_dns_name": "apps.own.example.com",
        "kafka_machine_pool_node_count": 3, "access_kafkas_via_private_network": true,
    });
    let clusters = format!("{}/clusters", KAFKA.prefix);
    let made = stage.call("carol", "POST", &clusters, &body).await;
    let parameters = made.body["fleetshard_parameters"].as_array().unwrap();
    let parameter = |id: &str| {
        let found = parameters.iter().find(|one| one["id"] == id);
        found.unwrap()["value"].as_str().unwrap().to_owned()
    };
    let (client, secret) = (parameter("sso-client-id"), parameter("sso-secret"));
    let agent = token(&stage, &client, &secret).await.unwrap();
    let created = async || {
        let text = scrape(&stage).await;
        let name = r#"kas_fleet_manager_cluster_operations_success_count{operation="create"}"#;
        let waits = r#"cluster_status_count{status="waiting_for_kas_fleetshard_operator"}"#;
        let waits = value(&text, &format!("kas_fleet_manager_{waits}"));
        (value(&text, name), waits)
    };
    assert_eq!(created().await, (Some(0.0), Some(1.0)), "those that were there do not count");
    for (ready, waits) in [("True", 0.0), ("False", 1.0), ("True", 0.0)] {
        let report = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        let path = format!("{}/agent-clusters/{id}/status", KAFKA.prefix);
        let put = stage.call(&agent, "PUT", &path, &report).await;
        assert_eq!(put.status, 204, "{}", put.text);
        stage.get("carol", &clusters).await;
        assert_eq!(created().await, (Some(1.0), Some(waits)));
    }
}

/// The names of samples that a scrape has, also those that have no value yet.
fn offered(scrape: &str) -> BTreeSet<String> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .flat_map(|(name, of)| {
            let ends: &[&str] = match of {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            ends.iter().map(move |end| format!("{name}{end}"))
        })
        .collect()
}

/// The names that an expression asks for.
fn asked(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = ["mainstay_", "api_inbound_", "kas_fleet_manager_", "fleet_manager_"];
    words.filter(|word| ours.iter().any(|own| word.starts_with(own))).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn our_dashboard_asks_for_nothing_that_is_not_there() {
    let stage = Stage::new().await;
    stage.create_ready(KAFKA, "alice", "one").await;
    // The server tells of these: nothing outside is called on a stage.
    stage.app.metrics.outbound("DNS", "upsert", "ok", 0.1);
    stage.app.metrics.breaker("DNS", kernel::outbound::breaker::Phase::Closed);
    let offered = offered(&scrape(&stage).await);
    let text = include_str!("../../../../deploy/grafana/fleet.json");
    let dashboard: Value = serde_json::from_str(text).unwrap();
    let mut names = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            for (kind, prefix) in [("kafka", "kas_fleet_manager"), ("dinosaur", "fleet_manager")] {
                let asked =
                    asked(&expression.replace("${kind}", kind).replace("${prefix}", prefix));
                assert!(!asked.is_empty(), "{expression}");
                names.extend(asked);
            }
        }
    }
    let missing: Vec<&String> = names.iter().filter(|name| !offered.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {names:?}");
    assert!(names.len() > 25, "{names:?}");
}
