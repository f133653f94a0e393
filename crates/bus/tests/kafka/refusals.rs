//! What the broker refuses: messages that are too large, topics and permissions that are missing.

use bus::config::KafkaSink;
use bus::model::Message;
use bus::ports::out::Outlet;
use krafka::admin::{AclOperation, AclResourceType};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use testkit::kafka::{Kafka, Listener};

use crate::counting::*;
use crate::security;

pub fn admin(kafka: &Kafka) -> AdminClient<DefaultClientContext> {
    kafka.config(Listener::Plain).create().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused_alone() {
    let Some(kafka) = testkit::kafka() else { return };
    for transactions in [true, false] {
        let topic = kafka.name(if transactions { "large" } else { "large-idempotent" });
        let mut outlet = outlet(&topic, &KafkaSink { transactions, ..sink(&kafka) });
        outlet.open().await.unwrap();
        let mut messages = batch(&topic, 0..100);
        for index in [7, 63] {
            messages[index].body = noise(1_500_000).into();
        }
        // Does not even fit in the producer's buffer.
        messages[80].body = noise(20_000_000).into();
        let refused = send_but(&mut outlet, messages, at(99)).await;
        assert_eq!(refused.iter().map(|one| one.0).collect::<Vec<_>>(), [7, 63, 80]);
        assert!(refused[0].1.contains(&topic), "{}", refused[0].1);
        let (lost, doubled) = count(&read(&kafka, &topic).await, 100);
        assert_eq!((lost, doubled), (vec![7, 63, 80], vec![]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_of_a_message_that_is_too_large_are_delivered() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("small-limit");
    let small =
        NewTopic::new(&topic, 1, TopicReplication::Fixed(1)).set("max.message.bytes", "9000");
    admin(&kafka).create_topics([&small], &AdminOptions::new()).await.unwrap();
    let mut outlet = outlet(&topic, &sink(&kafka));
    outlet.open().await.unwrap();
    // Together they are more than the limit, so all of them are suspects at first.
    let mut messages: Vec<Message> = batch(&topic, 0..30);
    for message in &mut messages {
        message.attributes.push(("noise".into(), "x".repeat(20)));
        message.attributes.push(("more".into(), format!("{:?}", noise(250))));
    }
    messages[11].body = noise(10_000).into();
    let refused = send_but(&mut outlet, messages, at(29)).await;
    assert_eq!(refused.iter().map(|one| one.0).collect::<Vec<_>>(), [11]);
    assert_eq!(count(&read(&kafka, &topic).await, 30), (vec![11], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_missing_is_named_unless_it_may_be_created() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("missing");
    let config = KafkaSink { create_topics: false, ..sink(&kafka) };
    let error = outlet(&topic, &config).open().await.unwrap_err().to_string();
    assert!(error.contains(&format!("mainstay-cursors.{topic}")), "{error}");
    assert!(error.contains("create it, or set create_topics = true"), "{error}");
    let mut outlet = outlet(&topic, &KafkaSink { transactions: false, ..config });
    outlet.open().await.unwrap();
    let error = outlet.send(&batch(&topic, 0..1), at(0)).await.unwrap_err().to_string();
    assert!(error.contains(&format!("topic {topic}")), "{error}");
    assert!(error.contains("create it, or set create_topics = true"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_under_us_is_created_again() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("deleted");
    let (progress, mut reached_now) = tokio::sync::watch::channel(Progress::default());
    let mut first = outlet(&topic, &sink(&kafka));
    first.open().await.unwrap();
    first.send(&batch(&topic, 0..100), at(99)).await.unwrap();
    admin(&kafka).delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();
    // Goes on at 100, on a connection that does not know yet, and then on another.
    let sent = first.send(&batch(&topic, 100..200), at(199)).await;
    eprintln!("the first after the deletion: {sent:?}");
    drop(first);
    let pumping =
        tokio::spawn(pump(outlet(&topic, &sink(&kafka)), topic.clone(), 400, 100, progress));
    reached(&mut reached_now, 400).await;
    pumping.await.unwrap();
    let (lost, doubled) = count(&read(&kafka, &topic).await, 400);
    assert!(lost.iter().all(|seq| *seq < 100), "{lost:?}");
    assert!(doubled.is_empty(), "{doubled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_missing_is_named() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("forbidden");
    let mut config = security::sasl_sink(&kafka, "sasl", "plain");
    let sasl = config.sasl.as_mut().unwrap();
    sasl.username = kafka.server.get("limited_user").into();
    sasl.password =
        kernel::secret::SecretSource::Value(kafka.server.get("limited_password").into());
    let error = outlet(&topic, &config).open().await.unwrap_err().to_string();
    assert!(error.contains("grant READ, WRITE and DESCRIBE on topic mainstay-cursors."), "{error}");
    let (limited, all) = (kafka.server.get("limited_user"), AclOperation::All);
    let cursors = format!("mainstay-cursors.{topic}");
    security::allow(&kafka, limited, AclResourceType::Topic, &cursors, all).await;
    outlet(&topic, &sink(&kafka)).open().await.unwrap();
    let id = format!("mainstay-{topic}");
    until_refused_for(
        &topic,
        &config,
        &format!("grant WRITE and DESCRIBE on transactional id {id}"),
    )
    .await;
    security::allow(&kafka, limited, AclResourceType::TransactionalId, &id, all).await;
    until_refused_for(&topic, &config, &format!("grant WRITE and DESCRIBE on topic {topic}")).await;
}

/// The broker takes a moment to apply a new permission.
async fn until_refused_for(topic: &str, config: &KafkaSink, why: &str) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let mut outlet = outlet(topic, config);
        let sent = match outlet.open().await {
            Ok(_) => outlet.send(&batch(topic, 0..1), at(0)).await.map(drop),
            Err(error) => Err(error),
        };
        let error = sent.expect_err("it is not permitted").to_string();
        if error.contains(why) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "not {why}, but {error}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
