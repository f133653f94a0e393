//! A broker that stops, is killed, or raises an alarm. Each test has one of its own.

use std::time::Duration;

use bus::model::Message;
use bus::ports::inward::{DeadLetter, Reply, Settled};
use bus::ports::out::Outlet;
use bus::ports::out::rabbitmq::RabbitMqOutlet;
use lapin::{BasicProperties, Channel};
use testkit::rabbitmq::{Alarm, RabbitMq, VHost};

use crate::support::*;

/// Sends batches of 50 until it is enough; returns the last sequence number.
async fn stream(mut outlet: RabbitMqOutlet, enough: tokio_util::sync::CancellationToken) -> i64 {
    let mut last = 0;
    while !enough.is_cancelled() {
        pump(&mut outlet, &messages(last + 1..=last + 50)).await;
        last += 50;
    }
    outlet.close().await;
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_stopped_or_killed_mid_stream_loses_nothing() {
    let Some(shared) = testkit::rabbitmq() else { return };
    let own = shared.private().await;
    let vhost = own.vhost().await;
    let reader = bind(&vhost).await;
    drop(reader);
    // It writes down which queues it has up to a second late.
    own.server.stop().await;
    own.server.start().await;

    let mut outlet = outlet(&sink(&vhost));
    open(&mut outlet).await;
    let enough = tokio_util::sync::CancellationToken::new();
    let streaming = tokio::spawn(stream(outlet, enough.clone()));
    let grows = async |by: u32| {
        let before = depth(&vhost, "reader").await;
        let grown = async || (depth(&vhost, "reader").await >= before + by).then_some(());
        until("messages arrive", grown).await;
    };
    grows(200).await;
    own.server.stop().await;
    own.server.start().await;
    grows(200).await;
    own.server.kill().await;
    own.server.start().await;
    grows(200).await;
    enough.cancel();
    let last = tokio::time::timeout(TIMEOUT, streaming).await.expect("it ends").unwrap();
    let twice = count(&read_to(&vhost, last).await, last);
    assert!(twice <= 200, "{twice} came twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_delays_messages_and_loses_none() {
    let Some(shared) = testkit::rabbitmq() else { return };
    let own = shared.private().await;
    let vhost = own.vhost().await;
    let _reader = bind(&vhost).await;
    let outlet = outlet(&sink(&vhost));
    let (mut outlet, _) =
        delayed_by(&own, &vhost, Alarm::Memory, outlet, messages(1..=500), async {
            // Longer than it takes to give up a connection that is silent.
            tokio::time::sleep(Duration::from_secs(4)).await;
        })
        .await;
    outlet.close().await;
    let requester = waiting_commands(&vhost).await;
    let during = commands_during(&own, &vhost);
    let batch = messages(501..=1_000);
    let (mut outlet, running) = delayed_by(&own, &vhost, Alarm::Disk, outlet, batch, during).await;
    let published = async || (depth(&vhost, "dead").await == 1).then_some(());
    until("the dead letter is published", published).await;
    assert_eq!(running.stop().await, [""; 0], "on the same connections");
    assert_eq!(depth(&vhost, "commands").await, 0);
    // A reply may have been sent before the alarm was noticed.
    requester.queue_purge("reader".into(), Default::default()).await.unwrap();
    too_large(&own, &vhost, &mut outlet).await;
    outlet.close().await;
}

/// Sends a batch during an alarm, which it waits for on the same connection, while `during` happens.
async fn delayed_by<T>(
    own: &RabbitMq,
    vhost: &VHost,
    alarm: Alarm,
    mut outlet: RabbitMqOutlet,
    batch: Vec<Message>,
    during: impl Future<Output = T>,
) -> (RabbitMqOutlet, T) {
    open(&mut outlet).await;
    let mut blocked = outlet.blocked().expect("RabbitMQ says so");
    let seqs: Vec<i64> = batch.iter().map(|message| message.seq).collect();
    own.alarm(alarm).await;
    let sending = tokio::spawn(async move {
        let sent = send(&mut outlet, &batch).await;
        (outlet, sent)
    });
    let reason = tokio::time::timeout(TIMEOUT, blocked.wait_for(Option::is_some)).await;
    let reason = reason.expect("it is blocked").unwrap().clone().unwrap();
    let resource = if matches!(alarm, Alarm::Memory) { "memory" } else { "disk" };
    assert!(reason.contains(resource), "{reason}");
    let happened = during.await;
    assert!(!sending.is_finished(), "it waits as long as the alarm lasts");
    own.calm(alarm).await;
    let sent = tokio::time::timeout(TIMEOUT, sending).await.expect("it goes on");
    let (outlet, sent) = sent.unwrap();
    assert_eq!(sent.expect("on the same connection"), []);
    assert_eq!(*blocked.borrow(), None);
    let channel = vhost.connect().await.create_channel().await.unwrap();
    let mut reader = consume(&channel, "reader").await;
    let mut came = Vec::new();
    while came.len() < seqs.len() {
        let delivery = next(&mut reader).await;
        // Not a reply.
        if delivery.properties.message_id().is_some() {
            came.push(seq(&delivery));
        }
    }
    assert_eq!(came, seqs);
    (outlet, happened)
}

/// A message that the broker will never take is refused, after the broker has named its limit once.
async fn too_large(own: &RabbitMq, vhost: &VHost, outlet: &mut RabbitMqOutlet) {
    own.control(&["eval", "application:set_env(rabbit, max_message_size, 1000)."]).await;
    // Channels that are open keep the limit that they have.
    open(outlet).await;
    let mut batch = messages(1..=10);
    batch[4].body = vec![b'x'; 1_001].into();
    let error = send(outlet, &batch).await.unwrap_err().to_string();
    assert!(error.contains("larger than configured max size 1000"), "{error}");
    open(outlet).await;
    let refused = send(outlet, &batch).await.unwrap();
    assert_eq!(refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [4]);
    assert!(refused[0].reason.contains("1001 bytes"), "{refused:?}");
    let mut came = read_to(vhost, 10).await;
    came.sort_unstable();
    came.dedup();
    assert_eq!(came, [1, 2, 3, 4, 6, 7, 8, 9, 10]);
}

async fn waiting_commands(vhost: &VHost) -> Channel {
    let requester = requester(vhost).await;
    command(&requester, "dead", BasicProperties::default()).await;
    for number in 0..20 {
        let asking = BasicProperties::default().with_reply_to("reader".into());
        command(&requester, &format!("{number}"), asking).await;
    }
    requester
}

/// Commands are carried out and acknowledged during an alarm, although no dead letter and no reply can be
/// published.
async fn commands_during(own: &RabbitMq, vhost: &VHost) -> Running {
    let mut config = consumer_at(&host(vhost), vhost);
    config.reply_queues = ["reader".to_owned()].into();
    let running = run(config, 1_000, |incoming, replies| {
        Box::pin(async move {
            if incoming.body == "dead" {
                let letter = DeadLetter { reason: "as the test wants it".into(), field: None };
                return Settled::Dead(letter);
            }
            let to = incoming.reply_to.expect("it is allowed");
            let reply = Reply { to, body: "done".into(), traceparent: None };
            replies.send(reply).await.expect("somebody takes it");
            Settled::Done
        })
    });
    // Those that wait and those in work.
    let messages = async |queue: &str| {
        let arguments = ["list_queues", "-p", &vhost.name, "name", "messages", "--silent"];
        let listed = own.control(&arguments).await;
        let mut lines = listed.lines().filter_map(|line| line.split_once('\t'));
        lines.find(|(name, _)| *name == queue).map_or(0, |(_, count)| count.parse().unwrap())
    };
    let acknowledged = async || (messages("commands").await == 1).then_some(());
    until("all but the dead letter are acknowledged", acknowledged).await;
    assert_eq!(messages("dead").await, 0);
    running
}
