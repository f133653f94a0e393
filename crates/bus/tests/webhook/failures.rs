//! Receivers that fail: nothing is lost, and the order is kept.

use std::time::Duration;

use bus::model::Phase;
use bus::store;
use kernel::change::LeaseFence;
use serde_json::json;

use crate::receiver::{Receiver, Reply};
use crate::server::{Setup, until};

#[tokio::test]
async fn whatever_fails_is_sent_again_in_order() {
    let mut setup = Setup::default();
    setup.bus.webhooks.timeout_ms = 200;
    let (server, receiver) = (setup.start().await, Receiver::start().await);
    let elsewhere = Receiver::start().await;
    let replies = [
        Reply::Status(500),
        Reply::Status(404),
        Reply::Status(200),
        Reply::Status(400),
        Reply::With(302, "location", elsewhere.url()),
        Reply::With(307, "location", elsewhere.url()),
        Reply::Silence,
        Reply::Status(202),
        Reply::Status(503),
        Reply::Status(429),
    ];
    let tries = replies.len();
    receiver.then(replies);
    server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let mut seqs = Vec::new();
    for object in ["a", "b", "a", "c", "b"] {
        seqs.push(server.happen("acme", object).await);
    }
    receiver.wait_for(&seqs).await;
    assert_eq!(receiver.count(), tries + 3, "one that was accepted was sent again");
    let order: Vec<i64> = receiver.all().iter().map(|delivery| delivery.seq()).collect();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(elsewhere.count(), 0, "a redirect was followed");
}

#[tokio::test]
async fn a_receiver_that_was_away_gets_everything() {
    let server = Setup::default().start().await;
    let first = Receiver::start().await;
    let (address, url) = (first.address, first.url());
    let hook = server.webhook("alice", "orders", &url, json!({})).await;
    let mut seqs = vec![server.happen("acme", "a").await];
    first.wait_for(&seqs).await;
    drop(first);
    seqs = vec![server.happen("acme", "b").await, server.happen("acme", "c").await];
    let failures = |states: &serde_json::Value| states["lag_events"].as_i64() >= Some(2);
    until("it lags", async || failures(&server.sink(&hook.id).await)).await;
    let again = Receiver::start_at(address).await;
    again.wait_for(&seqs).await;
    assert_eq!(server.sink(&hook.id).await["phase"], "running");
}

/// The pump of a webhook starts some time after its creation was acknowledged.
#[tokio::test]
async fn events_between_the_creation_and_the_first_start_are_delivered() {
    let (setup, receiver) = (Setup::default(), Receiver::start().await);
    let server = setup.start().await;
    server.stop().await;
    server.happen("acme", "before").await;
    server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let seqs = [server.happen("acme", "a").await, server.happen("acme", "b").await];
    let _again = setup.start().await;
    receiver.wait_for(&seqs).await;
}

#[tokio::test]
async fn a_restart_continues_where_it_was() {
    let (setup, receiver) = (Setup::default(), Receiver::start().await);
    let mut seqs = Vec::new();
    let mut server = setup.start().await;
    server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    for object in ["a", "b", "c"] {
        seqs.push(server.happen("acme", object).await);
        receiver.wait_for(&seqs).await;
        server.stop().await;
        seqs.push(server.happen("acme", object).await);
        server = setup.start().await;
        receiver.wait_for(&seqs).await;
    }
}

/// The phase is of the webhook, not of the process that last wrote it.
#[tokio::test]
async fn a_webhook_that_failed_before_a_restart_runs_when_it_works() {
    let (setup, receiver) = (Setup::default(), Receiver::start().await);
    let server = setup.start().await;
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let seq = server.happen("acme", "a").await;
    receiver.wait_for(&[seq]).await;
    server.stop().await;
    let (store, ambient) = (server.store(), &server.app.ambient);
    let lease = store.lease("sinks", "test", Duration::from_secs(60)).await.unwrap().unwrap();
    let fence = LeaseFence { name: "sinks".into(), fence: lease.fence };
    store::report(store, ambient, &hook.id, fence, Phase::Failing, "it fails").await.unwrap();
    store.unlease("sinks", lease.fence).await.unwrap();
    assert_eq!(server.sink(&hook.id).await["phase"], "failing");
    let again = setup.start().await;
    let next = again.happen("acme", "b").await;
    receiver.wait_for(&[seq, next]).await;
    let sink = again.until_phase(&hook.id, "running").await;
    assert_eq!(sink["reason"], "");
}

#[tokio::test]
async fn a_receiver_that_is_away_affects_no_other() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    let away = Receiver::start().await;
    let url = away.url();
    drop(away);
    let hook = server.webhook("alice", "away", &url, json!({})).await;
    server.webhook("alice", "here", &receiver.url(), json!({})).await;
    let mut seqs = vec![server.happen("acme", "a").await];
    let lags = async || server.sink(&hook.id).await["lag_events"].as_i64() >= Some(1);
    until("the one lags", lags).await;
    for object in ["b", "a", "c"] {
        seqs.push(server.happen("acme", object).await);
    }
    receiver.wait_for(&seqs).await;
}
