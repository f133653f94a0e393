//! The event log over HTTP: pages, long poll, stream, visibility, purged events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as Raw;
use futures::StreamExt as _;
use kernel::Timestamp;
use kernel::log::EventFilter;
use testkit::on_every_store;
use testkit::stores::Fresh;
use tower::ServiceExt as _;

use crate::server::{TestResponse, TestServer, eventually};

on_every_store!(
    events_come_in_order_and_only_if_visible_to_the_caller,
    a_long_poll_ends_with_an_event_or_at_the_timeout,
    purged_events_are_reported_and_not_skipped,
    a_stream_resumes_after_the_last_event_id_and_continues_live,
    a_stream_delivers_everything_to_a_slow_client,
);

fn numbers(response: &TestResponse) -> Vec<i64> {
    let events = response.body["events"].as_array().expect("events");
    events.iter().map(|event| event["sequence"].as_i64().unwrap()).collect()
}

async fn with_five_events(fresh: &Fresh) -> TestServer {
    let server = TestServer::on(fresh);
    server.create("a", "acme", "alice", "ready").await;
    server.create("g", "globex", "carol", "ready").await;
    server.create("d", "", "dave", "ready").await;
    server.create("e", "", "eve", "ready").await;
    server.transition("a", "done").await;
    server
}

async fn events_come_in_order_and_only_if_visible_to_the_caller(fresh: &Fresh) {
    let server = with_five_events(fresh).await;
    let get = async |token, query: &str| server.get(token, &format!("/api/v1/events{query}")).await;
    let all = get("admin", "").await;
    assert_eq!(numbers(&all), [1, 2, 3, 4, 5]);
    assert_eq!(all.body["next"], 5);
    let event = &all.body["events"][4];
    assert_eq!(
        (&event["type"], &event["specversion"]),
        (&"mainstay.widget.done".into(), &"1.0".into())
    );
    assert_eq!(event["data"]["phase"], "done");
    assert_eq!(numbers(&get("alice", "").await), [1, 5]);
    assert_eq!(numbers(&get("dave", "").await), [3], "and not eve's, who has no org either");
    let filtered = get("admin", "?object=widget/a&after=1").await;
    assert_eq!(numbers(&filtered), [5]);
    assert_eq!(numbers(&get("admin", "?org=globex&kind=widget").await), [2]);
    assert_eq!(numbers(&get("admin", "?kind=other").await), Vec::<i64>::new());
    assert_eq!(get("carol", "?after=2").await.body["next"], 5, "others' need no second look");
    let page = get("admin", "?limit=2").await;
    assert_eq!((numbers(&page), &page.body["next"]), (vec![1, 2], &2.into()));
    assert_eq!(numbers(&get("admin", "?after=latest").await), Vec::<i64>::new());
    assert_eq!(get("alice", "?org=globex").await.status, 403);
    for (query, field) in
        [("?after=-1", "after"), ("?object=x", "object"), ("?wait_s=61", "wait_s")]
    {
        let response = get("admin", query).await;
        assert_eq!((response.status, response.error("field")), (400, field), "{query}");
    }
}

async fn a_long_poll_ends_with_an_event_or_at_the_timeout(fresh: &Fresh) {
    let server = Arc::new(with_five_events(fresh).await);
    let waiter = server.clone();
    let task =
        tokio::spawn(async move { waiter.get("alice", "/api/v1/events?after=5&wait_s=60").await });
    eventually("it waits", async || {
        server.get("", "/metrics").await.text.contains("mainstay_http_in_flight 2")
    })
    .await;
    server.transition("g", "done").await;
    tokio::task::yield_now().await;
    assert!(!task.is_finished(), "another organisation's event ends it not");
    server.transition("a", "gone").await;
    assert_eq!(numbers(&task.await.unwrap()), [7]);
    let empty = server.get("alice", "/api/v1/events?after=7&wait_s=1").await;
    assert_eq!((numbers(&empty), &empty.body["next"]), (vec![], &7.into()));
}

async fn purged_events_are_reported_and_not_skipped(fresh: &Fresh) {
    let server = with_five_events(fresh).await;
    let all = async || server.store.events(0, &EventFilter::default(), 100).await.unwrap();
    let cut = all().await[2].at;
    eventually("the clock has moved on", async || server.now() > cut).await;
    server.transition("a", "again").await;
    let before = all().await.pop().unwrap().at;
    server.store.purge(&testkit::stores::old(before, Timestamp(0)), 100).await.unwrap();
    let oldest = server.store.first_event().await.unwrap().expect("one is left");
    assert!(oldest > 1);
    let gone = server.get("admin", "/api/v1/events?after=0").await;
    assert_eq!((gone.status, gone.error("code")), (410, "gone"));
    assert_eq!(gone.body["error"]["oldest"], oldest);
    let stream = server.request("GET", "admin", "/api/v1/events").header("last-event-id", "0");
    let stream = stream.header("accept", "text/event-stream").body(Raw::empty()).unwrap();
    assert_eq!(server.send(stream).await.status, 410);
    let rest = server.get("admin", "/api/v1/events").await;
    assert_eq!(numbers(&rest)[0], oldest, "without a number, from the oldest");
}

/// Reads from a stream until it holds `count` events.
pub async fn read(body: &mut axum::body::BodyDataStream, count: usize) -> String {
    let mut text = String::new();
    while text.matches("\ndata:").count() < count || !text.ends_with("\n\n") {
        let chunk = tokio::time::timeout(Duration::from_secs(60), body.next()).await;
        let chunk = chunk.expect("in time").expect("the stream goes on").expect("no error");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    text
}

async fn a_stream_resumes_after_the_last_event_id_and_continues_live(fresh: &Fresh) {
    let server = with_five_events(fresh).await;
    let request = server.request("GET", "alice", "/api/v1/events").header("last-event-id", "1");
    let request = request.header("accept", "text/event-stream").body(Raw::empty()).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body().into_data_stream();
    let text = read(&mut body, 1).await;
    assert!(text.contains("id: 5\n") && text.contains("event: mainstay.widget.done\n"), "{text}");
    assert!(!text.contains("id: 1\n") && !text.contains("globex"), "{text}");
    server.transition("g", "done").await;
    server.transition("a", "more").await;
    let text = read(&mut body, 1).await;
    assert!(text.contains("id: 7\n") && !text.contains("id: 6\n"), "{text}");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let event: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!((&event["id"], &event["data"]["phase"]), (&"7".into(), &"more".into()));
}

async fn a_stream_delivers_everything_to_a_slow_client(fresh: &Fresh) {
    let server = TestServer::on(fresh);
    server.create("a", "acme", "alice", "0").await;
    for n in 1..350 {
        server.transition("a", &n.to_string()).await;
    }
    let request =
        server.request("GET", "alice", "/api/v1/events").header("accept", "text/event-stream");
    let request = request.body(Raw::empty()).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    let text = read(&mut response.into_body().into_data_stream(), 350).await;
    let ids: Vec<i64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("id: "))
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(ids, (1..=350).collect::<Vec<_>>());
}
