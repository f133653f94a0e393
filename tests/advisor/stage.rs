//! A Prometheus with containers, topics of the test's own, and a server between them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use support::{Client, Plan, wait_for};
use testkit::kafka::Kafka;
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History, Prometheus};

const MIB: f64 = 1024.0 * 1024.0;
const NAMESPACE: &str = "shop";

/// Where a job is published.
pub struct Topics {
    pub recommendations: String,
    pub error: String,
    pub summary: String,
}

impl Topics {
    pub const PARTITIONS: i32 = 3;

    pub async fn create(kafka: &Kafka) -> Topics {
        let create = async |name| kafka.topic(name, Topics::PARTITIONS).await;
        Topics {
            recommendations: create("recommendations").await,
            error: create("error").await,
            summary: create("summary").await,
        }
    }

    pub fn all(&self) -> [&str; 3] {
        [&self.recommendations, &self.error, &self.summary]
    }
}

/// So many containers of one pod each, measured for two hours.
pub async fn prometheus(containers: usize) -> Option<Prometheus> {
    let shared = testkit::prometheus()?;
    let workload = |number: usize| {
        let name = format!("c{number:04}");
        let load = Load::steady(0.1 + number as f64 / 1000.0);
        let container = Container::new(&name, load, Load::steady(64.0 * MIB));
        Workload::new(Kind::StatefulSet, &name, 1, vec![container])
    };
    let workloads = (0..containers).map(workload).collect();
    let shop = Namespace { name: NAMESPACE.into(), quota: None, workloads };
    // Near to now: a job finds what was there in the last quarter of an hour.
    let end_s = kernel::Ambient::system().now().millis() / 1000 / 120 * 120;
    let history = History { end_s, length_s: 7_200, step_s: 120 };
    Some(shared.private_with(&Cluster { seed: 1, namespaces: vec![shop] }, history).await)
}

/// The names of the experiments of all containers.
pub fn experiments(containers: usize) -> BTreeSet<String> {
    let name = |number| format!("p|default|{NAMESPACE}|c{number:04}(statefulset)|c{number:04}");
    (0..containers).map(name).collect()
}

pub fn plan(dir: &Path, prometheus: &Prometheus) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_e2e"), dir)
        .set("driver.lease_s", 2)
        .set("http.rate_per_s", 0)
        .set("telemetry.level", "warn")
        .set("advisor.datasources.p.url", prometheus.server.get(""))
}

pub fn publishing(plan: Plan, kafka: &Kafka, topics: &Topics) -> Plan {
    let sink = kafka.name("sink");
    let set = |key: &str| format!("bus.sinks.{sink}.{key}");
    plan.set(&set("renderer"), "kruize")
        .set(&set("kafka.brokers"), format!("[\"{}\"]", kafka.server.get("")))
        .set(&set("start"), "earliest")
        .set("advisor.topics.recommendations", &topics.recommendations)
        .set("advisor.topics.error", &topics.error)
        .set("advisor.topics.summary", &topics.summary)
}

/// Creates a job over everything; returns its id.
pub async fn create(client: &Client) -> String {
    let answer = client.post("/bulk", &json!({ "datasource": "p" })).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body["job_id"].as_str().unwrap().to_owned()
}

/// The summary of a job; null while the server does not answer.
pub async fn summary(client: &Client, job: &str) -> Value {
    match client.get(&format!("/bulk?job_id={job}")).await {
        Ok(answer) if answer.status == 200 => answer.body["summary"].clone(),
        _ => Value::Null,
    }
}

pub async fn completed(client: &Client, job: &str) {
    wait_for("the job completes", async || {
        let summary = summary(client, job).await;
        assert_ne!(summary["status"], "FAILED", "{summary}");
        summary["status"] == "COMPLETED"
    })
    .await;
}
