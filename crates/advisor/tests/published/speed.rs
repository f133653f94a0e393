//! How fast recommendations become messages.

use std::time::Instant;

use serde_json::json;
use testkit::stores;

use super::events;
use crate::support::server::{Server, config};
use crate::support::small::Small;
use crate::support::stand_in::StandIn;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures: cargo test -p advisor --test suite speed -- --ignored --nocapture"]
async fn recommendations_per_second() {
    let small = Small::of(5_000);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let renderer = server.app.renderers().find("kruize").unwrap();
    let events = events(&server).await;
    let begun = Instant::now();
    let (mut messages, mut bytes) = (0, 0);
    for event in &events {
        for message in renderer.render(event).await.unwrap() {
            (messages, bytes) = (messages + 1, bytes + message.body.len());
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let rate = f64::from(messages) / took;
    println!("{messages} messages of {} bytes: {rate:.0} per second", bytes / 5_001);
    assert_eq!(messages, 5_001);
}
