//! Messages on a good day, and the fence.

use std::collections::BTreeMap;

use bus::config::KafkaSink;
use bus::model::Message;
use bus::ports::out::{Outlet, Sent};

use crate::counting::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_message_arrives_once_and_those_of_a_key_in_order() {
    let Some(kafka) = testkit::kafka() else { return };
    for transactions in [true, false] {
        let topic = kafka.name(if transactions { "exactly" } else { "idempotent" });
        let config = KafkaSink { transactions, ..sink(&kafka) };
        let mut outlet = outlet(&topic, &config);
        assert_eq!(outlet.open().await.unwrap(), None);
        for number in 0..20 {
            let messages = batch(&topic, number * 500..(number + 1) * 500);
            assert_eq!(outlet.send(&messages, at(number * 500 + 499)).await.unwrap(), Sent::All);
        }
        outlet.close().await;
        let all = read(&kafka, &topic).await;
        assert_eq!(count(&all, 10_000), (vec![], vec![]));
        let mut partitions = BTreeMap::new();
        for one in &all {
            let first = partitions.entry(one.key.clone()).or_insert(one.partition);
            assert_eq!(one.partition, *first, "a key has one partition");
        }
        let position = outlet.open().await.unwrap();
        assert_eq!(position, transactions.then(|| at(9_999)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_position_is_the_newest_also_after_many_transactions_that_were_aborted() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("aborted");
    let mut outlet = outlet(&topic, &sink(&kafka));
    outlet.open().await.unwrap();
    outlet.send(&batch(&topic, 0..10), at(9)).await.unwrap();
    // Each leaves a record that is not committed in the cursor topic.
    let too_large = Message { body: noise(2_000_000).into(), ..message(&topic, 10) };
    for seq in 10..14 {
        let messages = [too_large.clone(), message(&topic, seq)];
        let sent = outlet.send(&messages, at(seq)).await.unwrap();
        assert!(matches!(&sent, Sent::None(refused) if refused.len() == 1), "{sent:?}");
    }
    outlet.send(&[], at(20)).await.unwrap();
    assert_eq!(outlet.open().await.unwrap(), Some(at(20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_key_have_none() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("without-a-key");
    let mut outlet = outlet(&topic, &sink(&kafka));
    outlet.open().await.unwrap();
    let messages = [Message { key: String::new(), ..message(&topic, 0) }, message(&topic, 1)];
    outlet.send(&messages, at(1)).await.unwrap();
    let mut keys: Vec<_> = read(&kafka, &topic).await.into_iter().map(|one| one.key).collect();
    keys.sort();
    assert_eq!(keys, [None, Some("object-1".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_follow_the_kafka_binding_of_cloudevents() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("headers");
    let mut outlet = outlet(&topic, &sink(&kafka));
    outlet.open().await.unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let binary = Message {
        attributes: vec![("id".into(), "7".into()), ("traceparent".into(), trace.into())],
        ..message(&topic, 7)
    };
    let structured = Message {
        content_type: "application/cloudevents+json",
        attributes: vec![("traceparent".into(), trace.into())],
        ..message(&topic, 27)
    };
    assert_eq!(outlet.send(&[binary, structured], at(27)).await.unwrap(), Sent::All);
    let all = read(&kafka, &topic).await;
    let header = |index: usize, name: &str| all[index].headers.get(name).map(String::as_str);
    assert_eq!(header(0, "content-type"), Some("application/json"));
    assert_eq!(header(0, "ce_id"), Some("7"));
    assert_eq!(header(0, "ce_traceparent"), Some(trace));
    assert_eq!(header(0, "traceparent"), Some(trace));
    assert_eq!(header(1, "content-type"), Some("application/cloudevents+json"));
    assert_eq!(header(1, "traceparent"), Some(trace));
    assert_eq!(all[0].key.as_deref(), Some("object-7"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_zombie_sends_after_its_successor_opened_is_refused_and_never_seen() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("zombie");
    let (mut zombie, mut successor) =
        (outlet(&topic, &sink(&kafka)), outlet(&topic, &sink(&kafka)));
    zombie.open().await.unwrap();
    zombie.send(&batch(&topic, 0..100), at(99)).await.unwrap();
    assert_eq!(successor.open().await.unwrap(), Some(at(99)));
    let error = zombie.send(&batch(&topic, 5000..5100), at(5099)).await.unwrap_err();
    assert!(error.to_string().contains("another holder of the sink has taken over"), "{error}");
    successor.send(&batch(&topic, 100..200), at(199)).await.unwrap();
    assert_exactly_once(&kafka, &topic, 200).await;
    assert!(read(&kafka, &topic).await.iter().all(|one| one.seq() < 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_another_left_open_holds_up_no_successor() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("left-open");
    let mut first = outlet(&topic, &sink(&kafka));
    first.open().await.unwrap();
    first.send(&batch(&topic, 0..10), at(9)).await.unwrap();
    // Dropped at a random point of a transaction, as when the process dies.
    for wait in [0, 1, 2, 4, 8] {
        let limit = std::time::Duration::from_millis(wait);
        let messages = batch(&topic, 10..1000);
        let cut = tokio::time::timeout(limit, first.send(&messages, at(999))).await;
        let position = first.open().await.unwrap().expect("there is one");
        if cut.is_ok() || position == at(999) {
            assert_eq!(position, at(999));
            return assert_exactly_once(&kafka, &topic, 1000).await;
        }
        assert_eq!(position, at(9));
    }
    first.send(&batch(&topic, 10..1000), at(999)).await.unwrap();
    assert_exactly_once(&kafka, &topic, 1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_of_another_installation_is_refused_and_not_disturbed() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("installations");
    let of = |name: &str| outlet(&topic, &sink(&kafka)).of_installation(name.into());
    let (mut ours, mut another) = (of("ours"), of("another"));
    ours.open().await.unwrap();
    ours.send(&batch(&topic, 0..10), at(9)).await.unwrap();
    let error = another.open().await.unwrap_err().to_string();
    assert!(error.contains("give the sink another name"), "{error}");
    ours.send(&batch(&topic, 10..20), at(19)).await.expect("it is not shut out");
    assert_eq!(of("ours").open().await.unwrap(), Some(at(19)));
    assert_exactly_once(&kafka, &topic, 20).await;
}

/// A broker answers that a topic was created before all of it knows the topic.
#[tokio::test(flavor = "multi_thread")]
async fn many_sinks_with_new_topics_open_at_the_first_attempt() {
    let Some(kafka) = testkit::kafka() else { return };
    let opened = (0..40).map(|index| {
        let mut outlet = outlet(&kafka.name(&format!("new-{index}")), &sink(&kafka));
        async move { outlet.open().await }
    });
    for position in futures::future::join_all(opened).await {
        assert_eq!(position.unwrap(), None);
    }
}
