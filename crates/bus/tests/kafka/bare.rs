//! Records that are the body of a command, without an envelope.

use std::collections::BTreeMap;

use bus::config::{KafkaConsumer, KafkaTopic};
use kernel::Ambient;

use crate::inward::{Inlet, consumer, produce, until_committed};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_an_envelope_is_named_by_its_place_the_same_at_each_delivery() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("bare", 1).await;
    let named = KafkaTopic {
        subject: "orders".into(),
        command: Some("note.add".into()),
        ..KafkaTopic::default()
    };
    let topics = BTreeMap::from([(topic.clone(), named)]);
    let config = KafkaConsumer { topics, ..consumer(&kafka, &topic) };
    let begun = Ambient::system().now();
    let mut first = Inlet::start(&config, 1);
    for body in ["{}", "{\"n\":2}"] {
        produce(&kafka, &topic, body.as_bytes(), &[]).await;
    }
    let one = first.next().await.bare.unwrap();
    assert_eq!(one.command, "note.add");
    assert!(one.issued_at >= begun, "{one:?}");
    assert_eq!(one.id, format!("{topic}.0.0.{}", one.issued_at.millis()));
    until_committed(&kafka, &config, &topic, 1).await;
    // It has the second one, and has not settled it.
    first.stop().await;
    let mut second = Inlet::start(&config, 9);
    let two = second.next().await;
    assert_eq!(two.body, "{\"n\":2}");
    let two = two.bare.unwrap();
    assert_eq!(two.id, format!("{topic}.0.1.{}", two.issued_at.millis()));
    second.stop().await;
    // A group that begins again has them under the same ids.
    let again = KafkaConsumer { group: kafka.name("other"), ..config };
    let mut third = Inlet::start(&again, 9);
    assert_eq!(third.next().await.bare.unwrap(), one);
    assert_eq!(third.next().await.bare.unwrap(), two);
    third.stop().await;
}
