//! A Kafka instance as its clients see it: the mock cluster, and the real broker where its jars are
//! installed.

use std::io::Write;
use std::time::Duration;

use fleet::dataplane::kafka::READY_LINE;
use fleet::dataplane::local::ProcessSpec;
use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::program::{line, spec};
use crate::support::{Plane, eventually};

fn kafka(env: &[(&str, &str)]) -> ProcessSpec {
    let mut spec = ProcessSpec { ready: line(READY_LINE), ..spec("k", "kafka") };
    spec.env.extend(env.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    spec
}

/// Without Java, even if this machine has it.
fn mock() -> ProcessSpec {
    let nothing = ["MAINSTAY_KAFKA_HOME", "KAFKA_HOME", "JAVA_HOME"].map(|name| (name, ""));
    kafka(&[&nothing[..], &[("PATH", "/nowhere")]].concat())
}

fn client(port: u16) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("127.0.0.1:{port}"));
    config.set("group.id", "readers").set("auto.offset.reset", "earliest");
    config
}

async fn produce(port: u16, payload: &str) {
    let producer: FutureProducer = client(port).create().unwrap();
    let record = FutureRecord::to("letters").key("k").payload(payload);
    producer.send(record, Duration::from_secs(60)).await.unwrap();
}

async fn consume(port: u16) -> String {
    let consumer: StreamConsumer = client(port).create().unwrap();
    consumer.subscribe(&["letters"]).unwrap();
    let received = tokio::time::timeout(Duration::from_secs(60), consumer.recv()).await;
    String::from_utf8(received.unwrap().unwrap().payload().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn without_java_the_mock_cluster_serves_and_says_what_it_is() {
    let plane = Plane::open().await;
    plane.supervisor.run(mock()).await.unwrap();
    let (port, facts) = plane.until_ready("k").await;
    assert_eq!(facts["flavour"], "librdkafka mock cluster");
    assert_eq!(facts["note"], "keeps nothing; for development");
    assert_eq!(facts["port"], port.to_string());
    produce(port, "hello").await;
    assert_eq!(consume(port).await, "hello");
    let (port, facts) = plane.kill_and_wait("k").await;
    assert_eq!(facts["port"], port.to_string());
    produce(port, "again").await;
    assert_eq!(consume(port).await, "again", "it keeps nothing");
    plane.close().await;
}

#[tokio::test]
async fn an_error_names_a_wrong_home_and_a_mock_never_hides_data() {
    let plane = Plane::open().await;
    plane.supervisor.run(kafka(&[("MAINSTAY_KAFKA_HOME", "/nowhere")])).await.unwrap();
    plane.until_failed("k", &["MAINSTAY_KAFKA_HOME", "/nowhere"], 0).await;
    std::fs::create_dir(plane.root.join("k/data")).unwrap();
    std::fs::write(plane.root.join("k/data/meta.properties"), "").unwrap();
    plane.supervisor.run(mock()).await.unwrap();
    plane.until_failed("k", &["a broker for the data in"], 0).await;
    plane.close().await;
}

/// Only its jars are needed, not the shared server; xtask counts it all the same.
fn skip() {
    let promised = std::env::var("MAINSTAY_TEST_SERVERS").unwrap_or_default();
    assert!(!promised.split(',').any(|name| name == "kafka"), "kafka is promised");
    eprintln!("skipped: Kafka is not installed (cargo xtask servers install kafka)");
    if let Ok(path) = std::env::var("MAINSTAY_TEST_SKIPPED") {
        let mut file = std::fs::File::options().append(true).open(path).unwrap();
        file.write_all(b"kafka\n").unwrap();
    }
}

#[tokio::test]
async fn a_real_broker_keeps_its_messages_when_it_is_killed() {
    let cache = servers::Cache::of_user().unwrap();
    let server = servers::find("kafka").unwrap();
    if !(server.installed)(&cache) {
        skip();
        return;
    }
    let plane = Plane::open().await;
    let jars = cache.dir("kafka", server.version).join("lib");
    let real = kafka(&[("MAINSTAY_KAFKA_HOME", jars.to_str().unwrap())]);
    plane.supervisor.run(real).await.unwrap();
    let (port, facts) = plane.until_ready("k").await;
    assert_eq!(facts["flavour"], "Apache Kafka");
    assert_eq!(facts["version"], server.version);
    produce(port, "to be kept").await;
    assert_eq!(plane.kill_and_wait("k").await.0, port);
    assert_eq!(consume(port).await, "to be kept");
    // Suspended, it shuts down cleanly, and continues after the restart.
    plane.supervisor.suspend("k").await.unwrap();
    let plane = plane.restart(async |_| ()).await;
    plane.supervisor.run(kafka(&[("MAINSTAY_KAFKA_HOME", jars.to_str().unwrap())])).await.unwrap();
    let (port, _) = plane.until_ready("k").await;
    produce(port, "and more").await;
    assert_eq!(consume(port).await, "and more", "the group has read the first");
    // Java alone dies: its parent exits, and both are restarted.
    let before = plane.pid("k");
    let java = std::process::Command::new("pgrep").args(["-P", &before.to_string()]).output();
    let java = String::from_utf8(java.unwrap().stdout).unwrap().trim().parse().unwrap();
    crate::support::kill("-KILL", java);
    eventually("another process", || plane.supervisor.pid("k").filter(|pid| *pid != before)).await;
    plane.until_ready("k").await;
    plane.close().await;
}
