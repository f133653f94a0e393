//! Events out, on bad days.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::load::Load;
use support::{Client, Plan, Server, wait_for};
use testkit::kafka::Kafka;
use testkit::postgres::Database;
use testkit::rabbitmq::VHost;

use crate::readers::{Reader, settle};

const PARTITIONS: i32 = 3;
/// What may be in flight at a crash: a batch, and what was sent since the position was saved.
const IN_FLIGHT_MAX: usize = 4000;

fn plan(dir: &Path) -> Plan {
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir);
    plan.set("driver.lease_s", 2).set("http.rate_per_s", 0).set("telemetry.level", "warn")
}

fn to_kafka(plan: Plan, kafka: &Kafka, sink: &str, topic: &str) -> Plan {
    let set = |key: &str| format!("bus.sinks.{sink}.{key}");
    plan.set(&set("kafka.brokers"), format!("[\"{}\"]", kafka.server.get("")))
        .set(&set("kafka.topic"), topic)
        .set(&set("start"), "earliest")
        .set(&set("filter.kinds"), "[\"widget\"]")
}

fn to_rabbitmq(plan: Plan, vhost: &VHost) -> Plan {
    let host = vhost.url.rsplit_once('@').expect("it has a user").1;
    plan.set("bus.sinks.events.rabbitmq.url", format!("amqp://{host}"))
        .set("bus.sinks.events.rabbitmq.username", &vhost.name)
        .set("bus.sinks.events.rabbitmq.password", &vhost.password)
        .set("bus.sinks.events.rabbitmq.exchange", "events")
        .set("bus.sinks.events.start", "earliest")
        .set("bus.sinks.events.filter.kinds", "[\"widget\"]")
}

async fn goes_on(load: &Load, reader: &Reader) {
    let (before, there) = (load.acknowledged(), reader.len());
    wait_for("acknowledgements", async || load.acknowledged() > before + 50).await;
    wait_for("messages", async || reader.len() > there).await;
}

/// Kills the server a few times while it relays.
async fn kill_the_server(what: &str, plan: &Plan, reader: &Reader) -> usize {
    let mut server = plan.start().await;
    let client = plan.client();
    let load = Load::start(&[client.at(&plan.url())], 4);
    for _ in 0..6 {
        goes_on(&load, reader).await;
        server.kill();
        server = plan.start().await;
    }
    goes_on(&load, reader).await;
    load.end().await;
    let doubled = settle(what, reader, &client).await;
    println!("{what}: {} messages, {doubled} of them twice", reader.len());
    assert!(!plan.log().contains("panicked"), "{}", plan.log());
    doubled
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_has_every_event_exactly_once_when_the_server_is_killed() {
    let Some(kafka) = testkit::kafka() else { return };
    let dir = tempfile::tempdir().unwrap();
    let topic = kafka.topic("events", PARTITIONS).await;
    let reader = Reader::kafka(&kafka, &topic, PARTITIONS);
    let plan = to_kafka(plan(dir.path()), &kafka, &kafka.name("sink"), &topic);
    assert_eq!(kill_the_server("kill -9, Kafka", &plan, &reader).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_loses_nothing_when_the_server_is_killed() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let reader = Reader::rabbitmq(&vhost, "events").await;
    let plan = to_rabbitmq(plan(dir.path()), &vhost);
    let doubled = kill_the_server("kill -9, RabbitMQ", &plan, &reader).await;
    assert!(doubled <= 6 * IN_FLIGHT_MAX, "{doubled}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_its_attempts_and_the_messages_about_them_are_one_trace() {
    let Some(kafka) = testkit::kafka() else { return };
    let dir = tempfile::tempdir().unwrap();
    let topic = kafka.topic("traced", PARTITIONS).await;
    let reader = Reader::kafka(&kafka, &topic, PARTITIONS);
    let plan = to_kafka(plan(dir.path()), &kafka, &kafka.name("sink"), &topic);
    let _server = plan.start().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let client = plan.client().traced(&format!("00-{trace}-00f067aa0ba902b7-01"));
    client.create(&json!({"name": "traced"})).await;
    wait_for("the end of the attempts", async || {
        reader.all().iter().any(|one| one.body["type"] == "mainstay.widget.ready")
    })
    .await;
    for one in reader.all() {
        let traceparent = one.body["traceparent"].as_str().unwrap_or_default();
        assert!(traceparent.starts_with(&format!("00-{trace}-")), "{}", one.body);
    }
}

/// Which of the servers relays, by its metrics. One that was paused says so until it notices.
async fn relaying(plans: &[Plan], client: &Client) -> usize {
    let mut found = Vec::new();
    wait_for("one replica that relays", async || {
        found.clear();
        for (n, plan) in plans.iter().enumerate() {
            let metrics = client.at(&plan.url()).get("/metrics").await;
            let text = metrics.map(|answer| answer.body.to_string()).unwrap_or_default();
            if text.contains("mainstay_bus_up{sink=") {
                found.push(n);
            }
        }
        found.len() == 1
    })
    .await;
    found[0]
}

/// Pauses the replica that relays for ten seconds and lets it go on; then kills the one that relays.
async fn pause_and_kill_the_leader(what: &str, plans: &[Plan], reader: &Reader) -> usize {
    let mut servers: Vec<Server> = Vec::new();
    for plan in plans {
        servers.push(plan.start().await);
    }
    let client = plans[0].client();
    let load = Load::start(&plans.iter().map(|plan| client.at(&plan.url())).collect::<Vec<_>>(), 4);
    goes_on(&load, reader).await;
    let leader = relaying(plans, &client).await;
    servers[leader].signal("STOP");
    let paused = Instant::now();
    let there = reader.len();
    // Of what was in flight some may still come; then the other one's.
    let other = client.at(&plans[1 - leader].url());
    let name = json!({"name": "after-the-pause"});
    wait_for("the other replica answers", async || {
        other
            .post("/api/v1/widgets", &name)
            .await
            .is_ok_and(|answer| matches!(answer.status, 202 | 409))
    })
    .await;
    let newest = {
        let page = other.read("/api/v1/events?kind=widget&limit=1000").await;
        page["next"].as_i64().unwrap_or(0)
    };
    wait_for("the other replica takes over", async || {
        reader.len() > there && reader.last() >= newest
    })
    .await;
    println!("{what}: took over {} ms after the pause", paused.elapsed().as_millis());
    tokio::time::sleep(Duration::from_secs(10).saturating_sub(paused.elapsed())).await;
    servers[leader].signal("CONT");
    goes_on(&load, reader).await;
    let leader = relaying(plans, &client).await;
    servers.remove(leader).kill();
    let there = reader.len();
    wait_for("the other replica takes over", async || reader.len() > there + 50).await;
    servers.insert(leader, plans[leader].start().await);
    goes_on(&load, reader).await;
    load.end().await;
    let doubled = settle(what, reader, &client).await;
    println!("{what}: {} messages, {doubled} of them twice", reader.len());
    doubled
}

async fn replicas(dir: &Path, database: &Database) -> [Plan; 2] {
    let first = plan(dir).database(database.url());
    // The replica needs the keys that the first start makes.
    first.start().await.stop();
    let second = first.replica("second");
    [first, second]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_has_every_event_exactly_once_when_the_relaying_replica_is_paused_and_killed() {
    let (Some(kafka), Some(database)) = (testkit::kafka(), Database::create().await) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let topic = kafka.topic("events", PARTITIONS).await;
    let reader = Reader::kafka(&kafka, &topic, PARTITIONS);
    let plans = replicas(dir.path(), &database).await;
    let plans = plans.map(|plan| to_kafka(plan, &kafka, &kafka.name("sink"), &topic));
    assert_eq!(pause_and_kill_the_leader("replicas, Kafka", &plans, &reader).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_loses_nothing_when_the_relaying_replica_is_paused_and_killed() {
    let (Some(rabbitmq), Some(database)) = (testkit::rabbitmq(), Database::create().await) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let reader = Reader::rabbitmq(&vhost, "events").await;
    let plans = replicas(dir.path(), &database).await.map(|plan| to_rabbitmq(plan, &vhost));
    let doubled = pause_and_kill_the_leader("replicas, RabbitMQ", &plans, &reader).await;
    assert!(doubled <= 2 * IN_FLIGHT_MAX, "{doubled}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_has_every_event_exactly_once_when_broker_and_server_are_killed() {
    let Some(shared) = testkit::kafka() else { return };
    let kafka = shared.private().await;
    let dir = tempfile::tempdir().unwrap();
    let topic = kafka.topic("events", PARTITIONS).await;
    let reader = Reader::kafka(&kafka, &topic, PARTITIONS);
    let plan = to_kafka(plan(dir.path()), &kafka, "events", &topic);
    let mut server = plan.start().await;
    let client = plan.client();
    let load = Load::start(&[client.at(&plan.url())], 4);
    goes_on(&load, &reader).await;
    kafka.server.kill().await;
    kafka.server.start().await;
    goes_on(&load, &reader).await;
    kafka.server.kill().await;
    server.kill();
    // The broker is away when the server starts, which does not wait for it.
    server = plan.start().await;
    let before = load.acknowledged();
    wait_for("acknowledgements", async || load.acknowledged() > before + 50).await;
    wait_for("it is degraded", async || {
        let health = client.read("/api/v1/self/liveliness?type=detailed").await;
        let checks = health["checks"].as_array().expect("they are listed");
        let failed = checks
            .iter()
            .any(|check| check["name"] == "sink events" && check["status"] == "failed");
        failed && health["status"] == "degraded"
    })
    .await;
    kafka.server.start().await;
    goes_on(&load, &reader).await;
    load.end().await;
    let doubled = settle("broker and server killed, Kafka", &reader, &client).await;
    assert_eq!(doubled, 0);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_loses_nothing_when_broker_and_server_are_killed() {
    let Some(shared) = testkit::rabbitmq() else { return };
    let rabbitmq = shared.private().await;
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let reader = Reader::rabbitmq(&vhost, "events").await;
    // It writes down which queues it has up to a second late.
    rabbitmq.control(&["eval", "mnesia:sync_log()."]).await;
    let plan = to_rabbitmq(plan(dir.path()), &vhost);
    let server = plan.start().await;
    let client = plan.client();
    let load = Load::start(&[client.at(&plan.url())], 4);
    goes_on(&load, &reader).await;
    rabbitmq.server.kill().await;
    server.kill();
    let server = plan.start().await;
    rabbitmq.server.start().await;
    goes_on(&load, &reader).await;
    load.end().await;
    let doubled = settle("broker and server killed, RabbitMQ", &reader, &client).await;
    assert!(doubled <= 2 * IN_FLIGHT_MAX, "{doubled}");
    drop(server);
}
