//! The fleet as a new user meets it: the binary, the local data plane, real clients.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{FutureProducer, FutureRecord};
use support::{Plan, wait_for};

fn plan(dir: &std::path::Path) -> Plan {
    kernel::outbound::install_tls();
    Plan::new(env!("CARGO_BIN_EXE_e2e"), dir).set("fleet.local.enabled", true)
}

async fn produce_and_consume(at: &str, text: &str) {
    let producer: FutureProducer =
        ClientConfig::new().set("bootstrap.servers", at).create().unwrap();
    let record = FutureRecord::<(), _>::to("demo").payload(text);
    producer.send(record, Duration::from_secs(30)).await.expect("the broker takes it");
    let (at, text) = (at.to_owned(), text.to_owned());
    let read = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", at)
            .set("group.id", "test")
            .set("auto.offset.reset", "earliest")
            .create()
            .unwrap();
        consumer.subscribe(&["demo"]).unwrap();
        // A missing file is reported as an error, and picked up later.
        let message = (0..600).find_map(|_| consumer.poll(Duration::from_millis(100))?.ok());
        assert_eq!(message.expect("a message").payload(), Some(text.as_bytes()));
    });
    read.await.unwrap();
}

#[tokio::test]
async fn a_kafka_in_a_moment_and_messages_through_it() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let _server = plan.start().await;
    assert_eq!(plan.run(&["login", "--local"]).code, 0);
    let made = plan.run(&["kafka", "create", "--name", "demo", "--wait", "-o", "json"]);
    assert_eq!(made.code, 0, "{made:?}");
    let made = made.json();
    assert_eq!((&made["status"], &made["instance_type"]), (&"ready".into(), &"developer".into()));
    let at = made["bootstrap_server_host"].as_str().expect("it can be reached");
    produce_and_consume(at, "hello").await;
    let output = plan.run(&["kafka", "describe", "demo"]);
    for part in ["ready", "What happened", "accepted", "provisioning", at] {
        assert!(output.stdout.contains(part), "{part} is not in {output:?}");
    }
    let again = plan.run(&["kafka", "create", "--name", "demo"]);
    assert_eq!(again.code, 6, "{again:?}");
    assert!(again.stderr.contains("KAFKAS-MGMT-36"), "{again:?}");
    assert_eq!(plan.run(&["kafka", "delete", "demo", "--wait"]).code, 0);
    assert_eq!(plan.run(&["kafka", "get", "demo"]).code, 5);
    assert_eq!(plan.run(&["kafka", "list", "-o", "json"]).json(), serde_json::json!([]));
    let left: Vec<_> = std::fs::read_dir(plan.data().join("instances")).unwrap().collect();
    assert!(left.iter().all(|e| e.as_ref().unwrap().file_name() == ".lock"), "{left:?}");
}

/// The server is killed at any moment of a creation and of a deletion; what was acknowledged
/// comes about, and nothing is left of what was deleted.
#[tokio::test]
async fn killed_in_every_phase_it_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let mut server = plan.start().await;
    assert_eq!(plan.run(&["login", "--local"]).code, 0);
    for round in 0..6u64 {
        let name = format!("dino-{round}");
        let made = plan.run(&["dinosaur", "create", "--name", &name]);
        assert_eq!(made.code, 0, "{made:?}");
        tokio::time::sleep(Duration::from_millis(round * 12)).await;
        server.kill();
        server = plan.start().await;
        let ready = plan.run(&["dinosaur", "list", "-o", "json"]);
        assert_eq!(ready.code, 0, "{ready:?}");
        wait_for("it is ready", async || {
            plan.run(&["dinosaur", "get", &name, "-o", "json"]).json()["status"] == "ready"
        })
        .await;
        let got = plan.run(&["dinosaur", "get", &name, "-o", "json"]).json();
        let at = format!("http://{}/healthz", got["host"].as_str().unwrap());
        assert_eq!(reqwest::get(&at).await.unwrap().status(), 200);
        assert_eq!(plan.run(&["dinosaur", "delete", &name]).code, 0);
        tokio::time::sleep(Duration::from_millis(round * 12)).await;
        server.kill();
        server = plan.start().await;
        wait_for("it is gone", async || plan.run(&["dinosaur", "get", &name]).code == 5).await;
        assert!(reqwest::get(&at).await.is_err(), "its process is still there");
    }
    let left: Vec<_> = std::fs::read_dir(plan.data().join("instances")).unwrap().collect();
    assert!(left.iter().all(|e| e.as_ref().unwrap().file_name() == ".lock"), "{left:?}");
    drop(server);
}
