//! Webhooks that are parked, resumed, replayed and deleted.

use reqwest::Method;
use serde_json::{Value, json};

use crate::receiver::{Receiver, Reply};
use crate::server::{Setup, until};

fn reason(sink: &Value) -> &str {
    sink["reason"].as_str().unwrap()
}

#[tokio::test]
async fn one_that_fails_for_long_is_parked_and_resumes_where_it_stopped() {
    let mut setup = Setup::default();
    setup.bus.webhooks.park_after_s = 1;
    setup.bus.webhooks.backoff_max_ms = 100;
    let (server, receiver) = (setup.start().await, Receiver::start().await);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let mut seqs = vec![server.happen("acme", "a").await];
    receiver.wait_for(&seqs).await;
    receiver.always(Reply::Status(500));
    seqs.extend([server.happen("acme", "b").await, server.happen("acme", "c").await]);
    let sink = server.until_phase(&hook.id, "parked").await;
    assert!(reason(&sink).contains("answered 500"), "{sink}");
    assert_eq!(sink["position"]["seq"], seqs[0]);
    let tries = receiver.count();
    assert!(tries > 3, "{tries}");
    // Neither an event nor a restart resumes it.
    seqs.push(server.happen("acme", "d").await);
    server.stop().await;
    receiver.always(Reply::Status(200));
    let again = setup.start().await;
    assert_eq!(again.sink(&hook.id).await["phase"], "parked");
    again.resume(&hook.id).await;
    receiver.wait_for(&seqs).await;
    assert_eq!(receiver.count(), tries + 3, "it was tried while it was parked");
    again.until_phase(&hook.id, "running").await;
}

#[tokio::test]
async fn one_that_is_gone_is_parked_at_once() {
    let (setup, receiver) = (Setup::default(), Receiver::start().await);
    let server = setup.start().await;
    receiver.always(Reply::Status(410));
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let seqs = [server.happen("acme", "a").await, server.happen("acme", "b").await];
    let sink = server.until_phase(&hook.id, "parked").await;
    assert!(reason(&sink).contains("410 Gone"), "{sink}");
    assert_eq!(receiver.count(), 1);
    // Each request to resume is one try.
    server.resume(&hook.id).await;
    receiver.wait(2).await;
    server.until_phase(&hook.id, "parked").await;
    server.stop().await;
    receiver.always(Reply::Status(200));
    let again = setup.start().await;
    assert_eq!(again.sink(&hook.id).await["phase"], "parked");
    again.resume(&hook.id).await;
    receiver.wait_for(&seqs).await;
    assert_eq!(receiver.count(), 4, "the restart tried it");
    again.until_phase(&hook.id, "running").await;
}

#[tokio::test]
async fn an_event_that_is_too_large_for_the_receiver_is_parked_alone() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    receiver.then([Reply::Status(413)]);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let (large, next) = (server.happen("acme", "a").await, server.happen("acme", "b").await);
    receiver.wait_for(&[next]).await;
    let parked = async || server.sink(&hook.id).await["parked"].clone();
    until("it is shown", async || parked().await != json!([])).await;
    let parked_event = &parked().await[0];
    assert_eq!(parked_event["seq"], large);
    assert!(parked_event["reason"].as_str().unwrap().contains("413"), "{parked_event}");
    server.resume(&hook.id).await;
    receiver.wait_for(&[next, large]).await;
    until("none is parked", async || parked().await == json!([])).await;
}

/// A parked webhook with parked events that fails again waits before the next try.
#[tokio::test]
async fn a_resume_that_fails_does_not_hammer_the_receiver() {
    let mut setup = Setup::default();
    (setup.bus.webhooks.backoff_ms, setup.bus.webhooks.backoff_max_ms) = (600_000, 600_000);
    setup.bus.webhooks.rate_per_organisation_max = 0;
    let (server, receiver) = (setup.start().await, Receiver::start().await);
    receiver.then([Reply::Status(413), Reply::Status(410)]);
    receiver.always(Reply::Status(500));
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let (large, next) = (server.happen("acme", "a").await, server.happen("acme", "b").await);
    server.until_phase(&hook.id, "parked").await;
    assert_eq!(receiver.count(), 2);
    for tries in 3..=12 {
        server.resume(&hook.id).await;
        receiver.wait(tries).await;
    }
    assert_eq!(receiver.count(), 12, "more than one try per request");
    receiver.always(Reply::Status(200));
    server.resume(&hook.id).await;
    receiver.wait_for(&[large, next]).await;
    server.until_phase(&hook.id, "running").await;
}

#[tokio::test]
async fn a_replay_is_a_new_epoch_with_other_ids() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let mut seqs = Vec::new();
    for object in ["a", "b", "c"] {
        seqs.push(server.happen("acme", object).await);
    }
    receiver.wait_for(&seqs).await;
    let path = format!("/api/v1/sinks/{}/replay", hook.id);
    let (status, body) = server.post("alice", &path, json!({"from": seqs[1]})).await;
    assert_eq!(status, 202, "{body}");
    receiver.wait_for(&[&seqs[..], &seqs[1..]].concat()).await;
    let all = receiver.all();
    let (first, second) = (&all[1], &all[3]);
    assert_eq!(
        (first.json()["epoch"].as_i64(), second.json()["epoch"].as_i64()),
        (Some(0), Some(1))
    );
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!(second.header("webhook-id"), format!("{}_1_{}", hook.id, seqs[1]));
    assert!(second.is_signed_with(&hook.secret));
    for bad in [0, -1, seqs[2] + 1000] {
        let (status, body) = server.post("alice", &path, json!({"from": bad})).await;
        assert_eq!((status, body["error"]["field"].as_str()), (400, Some("from")), "{body}");
    }
}

#[tokio::test]
async fn a_deleted_webhook_gets_nothing_and_holds_nothing_back() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let other = Receiver::start().await;
    server.webhook("alice", "others", &other.url(), json!({})).await;
    let first = server.happen("acme", "a").await;
    receiver.wait_for(&[first]).await;
    let path = format!("/api/v1/sinks/{}", hook.id);
    let (status, body) = server.call("alice", Method::DELETE, &path, Value::Null).await;
    assert_eq!((status, body["phase"].as_str()), (200, Some("deleted")), "{body}");
    until("its cursor is retired", async || server.is_retired(&hook.id).await).await;
    let second = server.happen("acme", "b").await;
    other.wait_for(&[first, second]).await;
    server.stop().await;
    assert_eq!(receiver.accepted(), [first]);
    assert!(server.is_retired(&hook.id).await);
    assert_eq!(server.get("alice", &path).await.0, 404);
}

/// Its pump writes the position once more when it ends.
#[tokio::test]
async fn one_that_is_deleted_during_a_delivery_holds_nothing_back() {
    let mut setup = Setup::default();
    setup.bus.webhooks.timeout_ms = 300;
    let (server, receiver) = (setup.start().await, Receiver::start().await);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    receiver.always(Reply::Silence);
    server.happen("acme", "a").await;
    receiver.wait(1).await;
    let path = format!("/api/v1/sinks/{}", hook.id);
    assert_eq!(server.call("alice", Method::DELETE, &path, Value::Null).await.0, 200);
    until("its cursor is retired", async || server.is_retired(&hook.id).await).await;
    server.stop().await;
    assert!(server.is_retired(&hook.id).await, "its pump took it back");
}
