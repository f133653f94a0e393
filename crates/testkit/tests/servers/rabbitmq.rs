//! RabbitMQ through lapin.

use std::time::Duration;

use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer};
use testkit::rabbitmq::{Alarm, VHost};

const TIMEOUT: Duration = Duration::from_secs(60);
const PERSISTENT: u8 = 2;

/// A channel whose publishing is confirmed. Its connection is closed with it.
async fn channel(vhost: &VHost) -> Channel {
    let channel = vhost.connect().await.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    channel
}

async fn quorum_queue(channel: &Channel, name: &str, more: &[(&str, AMQPValue)]) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    for (name, value) in more {
        arguments.insert((*name).into(), value.clone());
    }
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), options, arguments).await.unwrap();
}

async fn publish(channel: &Channel, queue: &str, payload: &str) -> Confirmation {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    let sent =
        channel.basic_publish("".into(), queue.into(), options, payload.as_bytes(), properties);
    sent.await.unwrap().await.unwrap()
}

async fn consumer(channel: &Channel, queue: &str) -> Consumer {
    let options = BasicConsumeOptions::default();
    let consuming = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    consuming.await.unwrap()
}

async fn next(consumer: &mut Consumer) -> Delivery {
    let next = tokio::time::timeout(TIMEOUT, consumer.next()).await;
    next.expect("a message comes").unwrap().unwrap()
}

fn text(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.data).unwrap()
}

fn header(delivery: &Delivery, name: &str) -> Option<AMQPValue> {
    delivery.properties.headers().as_ref()?.inner().get(name).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_confirmed_and_one_that_no_queue_takes_comes_back() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let channel = channel(&rabbitmq.vhost().await).await;
    quorum_queue(&channel, "work", &[]).await;
    assert_eq!(publish(&channel, "work", "one").await, Confirmation::Ack(None));
    let delivery = next(&mut consumer(&channel, "work").await).await;
    assert_eq!((text(&delivery), delivery.redelivered), ("one", false));
    let returned = publish(&channel, "nowhere", "two").await.take_message().unwrap();
    assert_eq!((returned.reply_code, returned.delivery.data.as_slice()), (312, "two".as_bytes()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_too_often_becomes_a_dead_letter() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let channel = channel(&rabbitmq.vhost().await).await;
    let dead = AMQPValue::LongString("dead".into());
    let more = [
        ("x-dead-letter-exchange", AMQPValue::LongString("".into())),
        ("x-dead-letter-routing-key", dead),
        ("x-delivery-limit", AMQPValue::LongInt(2)),
    ];
    quorum_queue(&channel, "work", &more).await;
    quorum_queue(&channel, "dead", &[]).await;
    publish(&channel, "work", "poison").await;
    let mut work = consumer(&channel, "work").await;
    let again = BasicRejectOptions { requeue: true };
    for times in [None, Some(1), Some(2)] {
        let delivery = next(&mut work).await;
        let counted = header(&delivery, "x-delivery-count");
        assert_eq!(counted, times.map(AMQPValue::LongLongInt), "how often it was given back");
        assert_eq!(delivery.redelivered, times.is_some());
        delivery.reject(again).await.unwrap();
    }
    let delivery = next(&mut consumer(&channel, "dead").await).await;
    assert_eq!(text(&delivery), "poison");
    let Some(AMQPValue::FieldArray(deaths)) = header(&delivery, "x-death") else {
        panic!("it does not say how it died: {:?}", delivery.properties)
    };
    let AMQPValue::FieldTable(death) = &deaths.as_slice()[0] else { panic!("{deaths:?}") };
    let reason = death.inner().get("reason");
    assert_eq!(reason, Some(&AMQPValue::LongString("delivery_limit".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_no_rights_in_another_vhost() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let (own, other) = (rabbitmq.vhost().await, rabbitmq.vhost().await);
    let url = format!("{}{}", own.url.strip_suffix(&own.name).unwrap(), other.name);
    let error = testkit::rabbitmq::connect(&url).await.unwrap_err().to_string();
    assert!(error.contains("NOT_ALLOWED") && error.contains(&other.name), "{error}");
    let url = own.url.replace(&format!(":{}@", own.password), ":wrong@");
    let error = testkit::rabbitmq::connect(&url).await.unwrap_err().to_string();
    assert!(error.contains("ACCESS_REFUSED"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_is_there_after_a_kill() {
    let Some(shared) = testkit::rabbitmq() else { return };
    let own = shared.private().await;
    let vhost = own.vhost().await;
    quorum_queue(&channel(&vhost).await, "kept", &[]).await;
    // It writes down which queues it has up to a second late: one that is killed earlier brings
    // the queue back empty and without a leader, for good.
    own.server.stop().await;
    own.server.start().await;
    let before = channel(&vhost).await;
    let payloads: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    let sends = payloads.iter().map(|payload| publish(&before, "kept", payload));
    for confirmed in futures::future::join_all(sends).await {
        assert_eq!(confirmed, Confirmation::Ack(None));
    }
    own.server.kill().await;
    assert!(testkit::rabbitmq::connect(&vhost.url).await.is_err(), "it is gone");
    own.server.start().await;
    let mut kept = consumer(&channel(&vhost).await, "kept").await;
    for payload in &payloads {
        assert_eq!(text(&next(&mut kept).await), payload);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stands_still_goes_on_where_it_was() {
    let Some(shared) = testkit::rabbitmq() else { return };
    let own = shared.private().await;
    let channel = channel(&own.vhost().await).await;
    quorum_queue(&channel, "paused", &[]).await;
    own.server.pause().await;
    let publishing = publish(&channel, "paused", "meanwhile");
    tokio::pin!(publishing);
    let waits = tokio::time::timeout(Duration::from_millis(200), &mut publishing).await;
    assert!(waits.is_err(), "it answers although it stands still");
    own.server.resume().await;
    assert_eq!(publishing.await, Confirmation::Ack(None), "on the same connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_speaks_tls_and_takes_no_messages_during_an_alarm() {
    let Some(shared) = testkit::rabbitmq() else { return };
    let own = shared.private().await;
    let vhost = own.vhost().await;
    let url = format!("amqps://{0}:{0}-password@{1}/{0}", vhost.name, own.server.get("tls"));
    let authority = std::fs::read_to_string(own.server.get("ca")).unwrap();
    let trusting = OwnedTLSConfig { cert_chain: Some(authority), ..OwnedTLSConfig::default() };
    let connect = async |tls: OwnedTLSConfig| {
        let runtime = lapin::runtime::default_runtime()?;
        Connection::connect_with_config(&url, ConnectionProperties::default(), tls, runtime).await
    };
    let stranger = connect(OwnedTLSConfig::default()).await.unwrap_err().to_string();
    assert!(stranger.contains("UnknownIssuer"), "{stranger}");
    let channel = connect(trusting).await.unwrap().create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    quorum_queue(&channel, "tls", &[]).await;
    assert_eq!(publish(&channel, "tls", "calm").await, Confirmation::Ack(None));
    for alarm in [Alarm::Memory, Alarm::Disk] {
        own.alarm(alarm).await;
        let publishing = publish(&channel, "tls", "alarmed");
        tokio::pin!(publishing);
        let waits = tokio::time::timeout(Duration::from_millis(200), &mut publishing).await;
        assert!(waits.is_err(), "it takes a message during the alarm for {alarm:?}");
        own.calm(alarm).await;
        assert_eq!(publishing.await, Confirmation::Ack(None), "on the same connection");
    }
}
