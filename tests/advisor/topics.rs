//! What a job publishes arrives exactly once for consumers of committed records, and its summary last.

use std::path::Path;

use serde_json::json;
use support::{Client, Plan, Server, wait_for};
use testkit::postgres::Database;

use crate::consumer::{Consumer, settle};
use crate::stage::{Topics, completed, create, experiments, plan, prometheus, publishing, summary};

/// Four shards.
const CONTAINERS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_published_once_with_its_summary_last_and_so_is_the_next_one() {
    let Some(kafka) = testkit::kafka() else { return };
    let Some(prometheus) = prometheus(CONTAINERS).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::create(&kafka).await;
    let consumer = Consumer::start(&kafka, &topics);
    let plan = publishing(plan(dir.path(), &prometheus), &kafka, &topics);
    let _server = plan.start().await;
    let client = plan.client();
    for _ in 0..2 {
        let job = create(&client).await;
        let expected = experiments(CONTAINERS);
        let rate = settle(&kafka, &topics, &consumer, &job, &expected).await;
        println!("published {rate:.0} recommendations per second, as fast as they were made");
    }
    assert!(!plan.log().contains("panicked"), "{}", plan.log());
}

/// Kills the server again and again while a job runs.
async fn kill(
    what: &str,
    plan: &Plan,
    consumer: &Consumer,
    mut server: Server,
) -> (String, Server) {
    let client = plan.client();
    let job = create(&client).await;
    let mut at = Vec::new();
    // After each shard: in the middle of reading the next, and of publishing this one.
    for shards in 1..=3 {
        let mut processed = 0;
        wait_for("the job goes on", async || {
            let there = summary(&client, &job).await;
            processed = there["processed_experiments"].as_u64().unwrap_or(0);
            processed as usize >= shards * CONTAINERS / 4
        })
        .await;
        server.kill();
        at.push((processed, consumer.len()));
        server = plan.start().await;
    }
    completed(&client, &job).await;
    println!("{what}: killed when {at:?} of {CONTAINERS} were processed and published");
    assert!(at[0].0 < CONTAINERS as u64, "the job was not in its middle: {at:?}");
    (job, server)
}

async fn killed(what: &str, dir: &Path, with: impl FnOnce(Plan) -> Plan) {
    let Some(kafka) = testkit::kafka() else { return };
    let Some(prometheus) = prometheus(CONTAINERS).await else { return };
    let topics = Topics::create(&kafka).await;
    let consumer = Consumer::start(&kafka, &topics);
    // One shard after the other, so that there is a middle.
    let plan = with(plan(dir, &prometheus)).set("advisor.shards_max", 1);
    let plan = publishing(plan, &kafka, &topics);
    let server = plan.start().await;
    let (job, _server) = kill(what, &plan, &consumer, server).await;
    settle(&kafka, &topics, &consumer, &job, &experiments(CONTAINERS)).await;
    assert!(!plan.log().contains("panicked"), "{}", plan.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_missing_or_doubled_when_a_server_with_sqlite_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    killed("kill -9, SQLite", dir.path(), |plan| plan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_missing_or_doubled_when_a_server_with_postgresql_is_killed() {
    let Some(database) = Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    killed("kill -9, PostgreSQL", dir.path(), |plan| plan.database(database.url())).await;
}

/// The names of the existing service, and its own topics, on a Kafka of the test's own.
fn as_the_existing_service(plan: Plan, brokers: &str) -> (Plan, Topics) {
    let plan = plan
        .variable("isKafkaEnabled", "true")
        .variable("KAFKA_BOOTSTRAP_SERVERS", brokers)
        .variable("KAFKA_TOPICS", "recommendations-topic,error-topic,summary-topic");
    let topics = Topics {
        recommendations: "recommendations-topic".into(),
        error: "error-topic".into(),
        summary: "summary-topic".into(),
    };
    (plan, topics)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_published_whole_when_kafka_is_back_after_being_away_for_all_of_it() {
    let Some(shared) = testkit::kafka() else { return };
    let Some(prometheus) = prometheus(CONTAINERS).await else { return };
    let kafka = shared.private().await;
    let dir = tempfile::tempdir().unwrap();
    let (plan, topics) =
        as_the_existing_service(plan(dir.path(), &prometheus), kafka.server.get(""));
    let plan = plan
        .set("bus.sinks.kruize.start", "earliest")
        .set("bus.sinks.kruize.kafka.partitions", Topics::PARTITIONS);
    kafka.server.kill().await;
    let server = plan.start().await;
    let client: Client = plan.client();
    let job = create(&client).await;
    completed(&client, &job).await;
    let sinks = client.read("/api/v1/sinks").await;
    assert_eq!(sinks["sinks"][0]["phase"], "failing", "{sinks}");
    // And the server is killed before anything is published.
    server.kill();
    let _server = plan.start().await;
    kafka.server.start().await;
    wait_for("the topics", async || {
        let sinks = client.get("/api/v1/sinks").await;
        sinks.is_ok_and(|sinks| sinks.body["sinks"][0]["lag_events"] == 0)
    })
    .await;
    let consumer = Consumer::start(&kafka, &topics);
    let rate = settle(&kafka, &topics, &consumer, &job, &experiments(CONTAINERS)).await;
    println!("Kafka was away: {rate:.0} recommendations per second afterwards");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_job_fails_is_on_the_error_topic_and_its_summary_follows() {
    let Some(kafka) = testkit::kafka() else { return };
    let Some(prometheus) = prometheus(1).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let topics = Topics::create(&kafka).await;
    let consumer = Consumer::start(&kafka, &topics);
    let plan = plan(dir.path(), &prometheus)
        .set("advisor.datasources.prometheus-1.url", "http://127.0.0.1:1")
        .set("advisor.source_retries_max", 1);
    let plan = publishing(plan, &kafka, &topics);
    let _server = plan.start().await;
    let client = plan.client();
    let answer = client.post("/bulk", &json!({})).await.unwrap();
    let job = answer.body["job_id"].as_str().unwrap();
    let summary = consumer.summary(&topics, job).await;
    // A consumer of two topics has no order between them.
    wait_for("the error", async || consumer.len() == 2).await;
    let all = consumer.all();
    let [error] = &all.iter().filter(|one| one.topic == topics.error).collect::<Vec<_>>()[..]
    else {
        panic!("{all:?}")
    };
    assert!(error.at_ms <= summary.at_ms, "{all:?}");
    assert_eq!((error.job(), error.key.as_deref()), (job, Some(job)));
    for one in [*error, &summary] {
        assert_eq!(one.body["summary"]["status"], "FAILED");
        assert_eq!(one.body["summary"]["notifications"]["503"]["type"], "ERROR", "{}", one.body);
    }
}
