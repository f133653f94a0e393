//! Bulk jobs from a topic: as commands in an envelope, and as the existing service would take them.

use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::{Value, json};
use support::{Client, Plan, wait_for};
use testkit::kafka::{Kafka, Listener};

use crate::consumer::Dead;
use crate::stage::{plan, prometheus};

async fn produce(kafka: &Kafka, topic: &str, value: &str) {
    let producer: FutureProducer = kafka.config(Listener::Plain).create().unwrap();
    let record = FutureRecord::<str, str>::to(topic).payload(value);
    producer.send(record, support::DEADLINE).await.unwrap();
}

async fn jobs(client: &Client) -> Vec<Value> {
    client.read("/api/v1/advisor/jobs").await["jobs"].as_array().unwrap().clone()
}

async fn until_jobs(client: &Client, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    wait_for("the jobs", async || {
        found = jobs(client).await;
        found.len() >= count && found.iter().all(|job| job["status"] == "COMPLETED")
    })
    .await;
    assert_eq!(found.len(), count, "{found:?}");
    found
}

fn consuming(plan: Plan, kafka: &Kafka, topics: [&str; 2]) -> Plan {
    let set = |key: &str| format!("bus.consumers.jobs.kafka.{key}");
    let [envelopes, bare] = topics;
    plan.set(&set("brokers"), format!("[\"{}\"]", kafka.server.get("")))
        .set(&set("group"), kafka.name("group"))
        .set(&set("dead_letter_topic"), kafka.name("dead"))
        .set(&set(&format!("topics.{envelopes}.subject")), "batch")
        .set(&set(&format!("topics.{envelopes}.org")), "local")
        .set(&set(&format!("topics.{bare}.subject")), "batch")
        .set(&set(&format!("topics.{bare}.org")), "local")
        .set(&set(&format!("topics.{bare}.command")), "bulk-job.create")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_come_from_a_topic_with_and_without_an_envelope_and_each_runs_once() {
    let Some(kafka) = testkit::kafka() else { return };
    let Some(prometheus) = prometheus(3).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let envelopes = kafka.topic("commands", 1).await;
    let bare = kafka.topic("bulk-input-topic", 1).await;
    let plan = consuming(plan(dir.path(), &prometheus), &kafka, [&envelopes, &bare]);
    let server = plan.start().await;
    let client = plan.client();
    let envelope = json!({
        "id": "nightly-1", "type": "bulk-job.create", "body": { "datasource": "p" },
        "issued_at": kernel::Ambient::system().now(),
    });
    for _ in 0..2 {
        produce(&kafka, &envelopes, &envelope.to_string()).await;
    }
    let named = json!({ "datasource": "p", "requestId": "nightly-2" }).to_string();
    for _ in 0..2 {
        produce(&kafka, &bare, &named).await;
    }
    let unnamed = json!({ "datasource": "p" }).to_string();
    for _ in 0..2 {
        produce(&kafka, &bare, &unnamed).await;
    }
    let found = until_jobs(&client, 4).await;
    let ids: Vec<_> = found.iter().filter_map(|job| job["input"]["requestId"].as_str()).collect();
    assert_eq!(ids, ["nightly-2"]);
    // What is wrong becomes a dead letter with its reason, and the next one is taken.
    for wrong in ["not JSON", r#"{"datasrc":"p"}"#, r#"{"datasource":"q"}"#] {
        produce(&kafka, &bare, wrong).await;
    }
    let other = json!({ "datasource": "p", "requestId": "nightly-2", "measurement_duration": "5" });
    produce(&kafka, &bare, &other.to_string()).await;
    produce(&kafka, &bare, &json!({ "datasource": "p", "requestId": "last" }).to_string()).await;
    until_jobs(&client, 5).await;
    let dead = Dead::read(&kafka, &kafka.name("dead"), 4).await;
    for (letter, why) in
        dead.iter().zip(["JSON", "datasrc", "`q` is not known", "different request"])
    {
        assert!(letter.reason.contains(why), "{letter:?} instead of {why}");
        assert_eq!(letter.topic, bare);
    }
    // A group that begins again repeats nothing.
    server.kill();
    let again = plan.set("bus.consumers.jobs.kafka.group", kafka.name("again"));
    let _server = again.start().await;
    produce(&kafka, &bare, &json!({ "datasource": "p", "requestId": "after" }).to_string()).await;
    until_jobs(&client, 6).await;
    assert_eq!(Dead::read(&kafka, &kafka.name("dead"), 8).await.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_names_of_the_existing_service_make_a_consumer() {
    let Some(shared) = testkit::kafka() else { return };
    let Some(prometheus) = prometheus(2).await else { return };
    let kafka = shared.private().await;
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path(), &prometheus)
        .set("telemetry.level", "info")
        .set("advisor.open_as.subject", "everybody")
        .set("advisor.open_as.org", "local")
        .variable("KAFKA_BOOTSTRAP_SERVERS", kafka.server.get(""))
        .variable("BULK_INPUT_TOPIC", "bulk-input-topic")
        .variable("KAFKA_CONSUMER_GROUP_ID", "bulk")
        .variable("bulkThreadPoolSize", "3");
    let _server = plan.start().await;
    assert!(plan.log().contains("without effect here: bulkThreadPoolSize"), "{}", plan.log());
    wait_for("the topic", async || plan.log().contains("partitions were assigned")).await;
    produce(&kafka, "bulk-input-topic", &json!({ "datasource": "p" }).to_string()).await;
    until_jobs(&plan.client(), 1).await;
}
