//! What cannot be carried out: kept with its reason, and out of the way.

use bus::ports::inward::{DeadLetter, Settled};
use lapin::BasicProperties;
use lapin::options::{BasicConsumeOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use testkit::rabbitmq::VHost;

use crate::support::*;

fn dead(reason: &str, field: Option<&str>) -> Answer {
    let letter = DeadLetter { reason: reason.into(), field: field.map(Into::into) };
    Box::pin(async { Settled::Dead(letter) })
}

async fn letters(vhost: &VHost) -> lapin::Consumer {
    let channel = vhost.connect().await.create_channel().await.unwrap();
    quorum_queue(&channel, "dead").await;
    consume(&channel, "dead").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_has_the_original_with_reason_and_field() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let (requester, mut letters) = (requester(&vhost).await, letters(&vhost).await);
    let mut running = run(consumer_at(&host(&vhost), &vhost), 1_000, |_, _| {
        dead("it has no such size", Some("spec.size"))
    });
    let mut headers = FieldTable::default();
    headers.insert("team".into(), AMQPValue::LongString("blue".into()));
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_message_id("m-1".into())
        .with_user_id(vhost.name.as_str().into())
        .with_expiration("60000".into())
        .with_headers(headers);
    command(&requester, "{\"spec\":0}", properties).await;
    running.next().await;
    let letter = next(&mut letters).await;
    assert_eq!(letter.data, b"{\"spec\":0}");
    for (name, value) in [
        ("reason", "it has no such size"),
        ("field", "spec.size"),
        ("mainstay-consumer", "inbox"),
        ("mainstay-exchange", ""),
        ("mainstay-routing-key", "commands"),
        ("mainstay-user-id", &vhost.name),
        ("team", "blue"),
    ] {
        assert_eq!(header(&letter, name).as_deref(), Some(value), "{name}");
    }
    let properties = &letter.properties;
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "m-1");
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(*properties.expiration(), None, "it would vanish");
    assert_eq!(running.stop().await, [""; 0]);
    assert_eq!(depth(&vhost, "commands").await, 0, "the original is acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_a_dead_letter_that_no_handler_sees() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let (requester, mut letters) = (requester(&vhost).await, letters(&vhost).await);
    let mut running = run(consumer_at(&host(&vhost), &vhost), 1_000, |_, _| done());
    command(&requester, &"x".repeat(1_001), BasicProperties::default()).await;
    command(&requester, &"y".repeat(1_000), BasicProperties::default()).await;
    assert_eq!(running.next().await.body, "y".repeat(1_000));
    let letter = next(&mut letters).await;
    assert_eq!(letter.data.len(), 1_001);
    let reason = header(&letter, "reason").unwrap();
    assert!(reason.contains("1001 bytes; the limit is 1000"), "{reason}");
    running.stop().await;
    assert_eq!(depth(&vhost, "commands").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_makes_a_dead_letter_and_goes_on() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let (requester, mut letters) = (requester(&vhost).await, letters(&vhost).await);
    let mut running = run(consumer_at(&host(&vhost), &vhost), 1_000, |incoming, _| {
        assert_ne!(incoming.body, "poison", "as the test wants it");
        done()
    });
    command(&requester, "poison", BasicProperties::default()).await;
    command(&requester, "good", BasicProperties::default()).await;
    let letter = next(&mut letters).await;
    assert_eq!(letter.data, b"poison");
    assert!(header(&letter, "reason").unwrap().contains("panicked"));
    while running.next().await.body != "good" {}
    assert_eq!(running.stop().await, [""; 0]);
    assert_eq!(depth(&vhost, "commands").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_always_comes_back_ends_as_a_dead_letter() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let (requester, mut letters) = (requester(&vhost).await, letters(&vhost).await);
    command(&requester, "boomerang", BasicProperties::default()).await;
    command(&requester, "bystander", BasicProperties::default()).await;
    // As a server that ends each time would give it back.
    let options = BasicConsumeOptions::default();
    let mut consumer = requester
        .basic_consume("commands".into(), "crashing".into(), options, FieldTable::default())
        .await
        .unwrap();
    for _ in 0..40 {
        let delivery = futures::StreamExt::next(&mut consumer).await.unwrap().unwrap();
        let again = lapin::options::BasicRejectOptions { requeue: true };
        delivery.reject(again).await.unwrap();
    }
    requester.basic_cancel("crashing".into(), Default::default()).await.unwrap();
    requester.close(200, "done".into()).await.unwrap();
    let mut running = run(consumer_at(&host(&vhost), &vhost), 1_000, |_, _| done());
    let letter = next(&mut letters).await;
    assert_eq!(letter.data, b"boomerang");
    let reason = header(&letter, "reason").unwrap();
    assert!(reason.contains("never settled"), "{reason}");
    // It came back as often, and was never the first.
    assert_eq!(running.next().await.body, "bystander");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_goes_only_where_we_send_it() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let (requester, mut letters) = (requester(&vhost).await, letters(&vhost).await);
    quorum_queue(&requester, "victim").await;
    // Its sender may write to `commands`, but asks us to write elsewhere.
    let mut headers = FieldTable::default();
    let victim = vec![AMQPValue::LongString("victim".into())];
    headers.insert("BCC".into(), AMQPValue::FieldArray(FieldArray::from(victim.clone())));
    headers.insert("CC".into(), AMQPValue::FieldArray(FieldArray::from(victim)));
    // The broker itself routes by these when the sender publishes.
    command(&requester, "copy", BasicProperties::default().with_headers(headers)).await;
    let by_sender = depth(&vhost, "victim").await;
    let running = run(consumer_at(&host(&vhost), &vhost), 1_000, |_, _| dead("no", None));
    let letter = next(&mut letters).await;
    assert_eq!(
        (header(&letter, "reason").as_deref(), header(&letter, "field")),
        (Some("no"), None)
    );
    assert_eq!(running.stop().await, [""; 0]);
    assert_eq!(depth(&vhost, "victim").await, by_sender, "nothing more than the sender did");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_dead_letter_queue_the_original_is_not_acknowledged() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let mut running = run(consumer_at(&host(&vhost), &vhost), 1_000, |incoming, _| {
        if incoming.body == "first" { done() } else { dead("no", None) }
    });
    command(&requester, "first", BasicProperties::default()).await;
    running.next().await;
    requester.queue_delete("dead".into(), QueueDeleteOptions::default()).await.unwrap();
    command(&requester, "dead", BasicProperties::default()).await;
    // The inlet ends with an error, makes the queue again, and the message is delivered again.
    let mut letters = until("the queue is made again", async || {
        let channel = vhost.connect().await.create_channel().await.unwrap();
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        channel.basic_consume("dead".into(), "".into(), options, none).await.ok()
    })
    .await;
    assert_eq!(next(&mut letters).await.data, b"dead");
    let errors = running.stop().await;
    assert!(errors[0].contains("queue dead"), "{errors:?}");
}
