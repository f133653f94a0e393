//! Commands in: over Kafka, with the same outcome as over REST.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use support::{Plan, wait_for};
use testkit::kafka::{Kafka, Listener};

use crate::commands::{command, create, each_once, plan};

fn from_kafka(plan: Plan, kafka: &Kafka, topic: &str) -> Plan {
    let set = |key: &str| format!("bus.consumers.orders.kafka.{key}");
    plan.set(&set("brokers"), format!("[\"{}\"]", kafka.server.get("")))
        .set(&set(&format!("topics.{topic}.subject")), "orders")
        .set(&set(&format!("topics.{topic}.org")), "acme")
        .set(&set("group"), kafka.name("group"))
        .set(&set("dead_letter_topic"), kafka.name("dead"))
}

async fn produce(producer: &FutureProducer, topic: &str, key: &str, payload: &str) {
    let record = FutureRecord::to(topic).key(key).payload(payload);
    let sent = producer.send(record, Duration::from_secs(30)).await;
    sent.map_err(|(error, _)| error).expect("produced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_over_kafka_are_carried_out_once_when_the_server_is_killed() {
    let Some(kafka) = testkit::kafka() else { return };
    let dir = tempfile::tempdir().unwrap();
    let topic = kafka.topic("commands", 3).await;
    let plan = from_kafka(plan(dir.path()), &kafka, &topic);
    let mut server = plan.start().await;
    let producer: FutureProducer = kafka.config(Listener::Plain).create().unwrap();
    let count = 300;
    for n in 0..count {
        let message = create(&format!("f{n}"), &format!("w{n}")).to_string();
        produce(&producer, &topic, &n.to_string(), &message).await;
        if n % 10 == 0 {
            produce(&producer, &topic, "again", &message).await;
        }
        if n == 100 {
            produce(&producer, &topic, "bad", "{\"type\": 7}").await;
        }
        if n % 100 == 50 {
            server.kill();
            server = plan.start().await;
        }
    }
    let client = plan.client();
    each_once(&client, count, "f").await;
    let dead = one_dead_letter(&kafka).await;
    assert!(dead.contains_key("reason"), "{dead:?}");
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_over_kafka_is_answered_until_it_is_over() {
    let Some(kafka) = testkit::kafka() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (topic, answers) = (kafka.topic("asked", 1).await, kafka.topic("answers", 1).await);
    let plan = from_kafka(plan(dir.path()), &kafka, &topic)
        .set("bus.consumers.orders.kafka.reply_topics", format!("[\"{answers}\"]"));
    let _server = plan.start().await;
    let producer: FutureProducer = kafka.config(Listener::Plain).create().unwrap();
    let bad = command("bad", "widget.create", None, json!({"name": ""}));
    for message in [create("good", "a"), bad] {
        let (payload, mut headers) = (message.to_string(), OwnedHeaders::new());
        for (key, value) in [("reply-to", answers.as_str()), ("correlation-id", "mine")] {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let record = FutureRecord::<str, str>::to(&topic).payload(&payload).headers(headers);
        producer.send(record, Duration::from_secs(30)).await.expect("produced");
    }
    let consumer = from_the_beginning(&kafka, &answers);
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    wait_for("all answers", async || {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) {
            assert_eq!(message.key(), Some("mine".as_bytes()), "by the correlation id");
            let answer: Value = serde_json::from_slice(message.payload().unwrap()).unwrap();
            let of = if answer["id"] == "good" { &mut good } else { &mut bad };
            of.push(answer["state"].as_str().unwrap().to_owned());
        }
        good.last().is_some_and(|state| state == "done") && !bad.is_empty()
    })
    .await;
    assert_eq!((good[0].as_str(), bad), ("accepted", vec!["rejected".to_owned()]));
}

fn from_the_beginning(kafka: &Kafka, topic: &str) -> BaseConsumer {
    let mut config = kafka.config(Listener::Plain);
    config.set("group.id", "none").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut assigned = TopicPartitionList::new();
    assigned.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&assigned).unwrap();
    consumer
}

/// The headers of the first dead letter.
async fn one_dead_letter(kafka: &Kafka) -> BTreeMap<String, String> {
    let consumer = from_the_beginning(kafka, &kafka.name("dead"));
    let mut found = None;
    wait_for("a dead letter", async || {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) {
            let headers = message.headers().expect("it has headers");
            let text =
                |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into();
            let pairs = headers.iter().map(|one| (one.key.to_owned(), text(one.value)));
            found = Some(pairs.collect());
        }
        found.is_some()
    })
    .await;
    found.expect("just found")
}
