//! Replies: to a requester that waits, to queues that are allowed, and to nobody else.

use bus::ports::inward::{Incoming, Reply, Settled};
use lapin::BasicProperties;
use lapin::options::BasicConsumeOptions;
use lapin::types::FieldTable;
use tokio::sync::mpsc;

use crate::support::*;

/// Answers each command with `re: BODY`, if it has an address.
fn echo(incoming: Incoming, replies: mpsc::Sender<Reply>) -> Answer {
    Box::pin(async move {
        if let Some(to) = incoming.reply_to {
            let body = [b"re: ", &incoming.body[..]].concat().into();
            replies.send(Reply { to, body, traceparent: Some(TRACE.into()) }).await.unwrap();
        }
        Settled::Done
    })
}

fn asking(address: &str, id: &str) -> BasicProperties {
    BasicProperties::default().with_reply_to(address.into()).with_correlation_id(id.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requester_gets_its_reply_directly() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let running = run(consumer_at(&host(&vhost), &vhost), 1_000, echo);
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let mut answers = requester
        .basic_consume("amq.rabbitmq.reply-to".into(), "".into(), options, FieldTable::default())
        .await
        .unwrap();
    for id in ["7", "8"] {
        command(&requester, "ping", asking("amq.rabbitmq.reply-to", id)).await;
        let answer = tokio::time::timeout(TIMEOUT, futures::StreamExt::next(&mut answers)).await;
        let answer = answer.expect("a reply comes").unwrap().unwrap();
        assert_eq!(answer.data, b"re: ping");
        assert_eq!(answer.properties.correlation_id().as_ref().unwrap().as_str(), id);
        let kind = answer.properties.content_type().as_ref().unwrap();
        assert_eq!(kind.as_str(), "application/json");
        assert_eq!(header(&answer, "traceparent").as_deref(), Some(TRACE));
    }
    assert_eq!(running.stop().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_go_to_queues_that_are_allowed_and_to_no_other() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    for queue in ["answers", "secret"] {
        quorum_queue(&requester, queue).await;
    }
    let mut config = consumer_at(&host(&vhost), &vhost);
    config.reply_queues = ["answers".to_owned(), "vanished".to_owned()].into();
    let mut running = run(config, 1_000, echo);
    for (body, address) in [
        ("1", "secret"),
        ("2", "vanished"),
        ("3", "amq.rabbitmq.reply-to.g2dkABJub3RoaW5nQG5vd2hlcmU"),
        ("4", "amq.rabbitmq.reply-to."),
        ("5", "amq.rabbitmq.reply-to.\u{1F407}"),
        ("6", ""),
        ("7", "answers"),
    ] {
        command(&requester, body, asking(address, "x")).await;
        let incoming = running.next().await;
        let allowed = incoming.reply_to.map(|to| to.address);
        let expected = (body != "1" && body != "6").then(|| address.to_owned());
        assert_eq!(allowed, expected, "{body}");
    }
    let mut answers = consume(&requester, "answers").await;
    assert_eq!(next(&mut answers).await.data, b"re: 7");
    assert_eq!(running.stop().await, [""; 0], "no address disturbs the consumer");
    assert_eq!(depth(&vhost, "commands").await, 0, "all are carried out");
    assert_eq!(depth(&vhost, "secret").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requester_that_is_gone_disturbs_nobody() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    quorum_queue(&requester, "answers").await;
    let gone = vhost.connect().await.create_channel().await.unwrap();
    gone.confirm_select(Default::default()).await.unwrap();
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let waiting = gone
        .basic_consume("amq.rabbitmq.reply-to".into(), "".into(), options, FieldTable::default())
        .await
        .unwrap();
    command(&gone, "bye", asking("amq.rabbitmq.reply-to", "x")).await;
    drop(waiting);
    gone.close(200, "gone".into()).await.unwrap();

    let mut config = consumer_at(&host(&vhost), &vhost);
    config.reply_queues = ["answers".to_owned()].into();
    let mut running = run(config, 1_000, echo);
    assert_eq!(running.next().await.body, "bye");
    command(&requester, "here", asking("answers", "x")).await;
    let mut answers = consume(&requester, "answers").await;
    assert_eq!(next(&mut answers).await.data, b"re: here");
    assert_eq!(running.stop().await, [""; 0]);
}
