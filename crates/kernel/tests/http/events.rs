//! The change feed: pages, long poll, stream; who sees what; what is no longer kept.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as Raw;
use futures::StreamExt as _;
use kernel::Timestamp;
use kernel::log::EventFilter;
use testkit::on_every_store;
use testkit::stores::Fresh;
use tower::ServiceExt as _;

use crate::world::{Answer, World, eventually};

on_every_store!(
    events_come_in_order_and_only_those_that_the_caller_sees,
    a_long_poll_answers_when_the_event_comes_or_the_time_is_over,
    what_is_no_longer_kept_is_said_and_not_skipped,
    a_stream_continues_where_its_reader_was_and_goes_on_live,
    a_stream_gives_everything_to_a_slow_reader,
);

fn numbers(answer: &Answer) -> Vec<i64> {
    let events = answer.body["events"].as_array().expect("events");
    events.iter().map(|event| event["sequence"].as_i64().unwrap()).collect()
}

async fn five(fresh: &Fresh) -> World {
    let world = World::on(fresh);
    world.create("a", "acme", "alice", "ready").await;
    world.create("g", "globex", "carol", "ready").await;
    world.create("d", "", "dave", "ready").await;
    world.create("e", "", "eve", "ready").await;
    world.transition("a", "done").await;
    world
}

async fn events_come_in_order_and_only_those_that_the_caller_sees(fresh: &Fresh) {
    let world = five(fresh).await;
    let get = async |token, query: &str| world.get(token, &format!("/api/v1/events{query}")).await;
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
        let answer = get("admin", query).await;
        assert_eq!((answer.status, answer.error("field")), (400, field), "{query}");
    }
}

async fn a_long_poll_answers_when_the_event_comes_or_the_time_is_over(fresh: &Fresh) {
    let world = Arc::new(five(fresh).await);
    let waiter = world.clone();
    let task =
        tokio::spawn(async move { waiter.get("alice", "/api/v1/events?after=5&wait_s=60").await });
    eventually("it waits", async || {
        world.get("", "/metrics").await.text.contains("mainstay_http_in_flight 2")
    })
    .await;
    world.transition("g", "done").await;
    tokio::task::yield_now().await;
    assert!(!task.is_finished(), "another organisation's event ends it not");
    world.transition("a", "gone").await;
    assert_eq!(numbers(&task.await.unwrap()), [7]);
    let empty = world.get("alice", "/api/v1/events?after=7&wait_s=1").await;
    assert_eq!((numbers(&empty), &empty.body["next"]), (vec![], &7.into()));
}

async fn what_is_no_longer_kept_is_said_and_not_skipped(fresh: &Fresh) {
    let world = five(fresh).await;
    let all = async || world.store.events(0, &EventFilter::default(), 100).await.unwrap();
    let cut = all().await[2].at;
    eventually("the clock has moved on", async || world.now() > cut).await;
    world.transition("a", "again").await;
    let before = all().await.pop().unwrap().at;
    world.store.purge(before, Timestamp(0), 100).await.unwrap();
    let oldest = world.store.first_event().await.unwrap().expect("one is left");
    assert!(oldest > 1);
    let gone = world.get("admin", "/api/v1/events?after=0").await;
    assert_eq!((gone.status, gone.error("code")), (410, "gone"));
    assert_eq!(gone.body["error"]["oldest"], oldest);
    let stream = world.request("GET", "admin", "/api/v1/events").header("last-event-id", "0");
    let stream = stream.header("accept", "text/event-stream").body(Raw::empty()).unwrap();
    assert_eq!(world.send(stream).await.status, 410);
    let rest = world.get("admin", "/api/v1/events").await;
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

async fn a_stream_continues_where_its_reader_was_and_goes_on_live(fresh: &Fresh) {
    let world = five(fresh).await;
    let request = world.request("GET", "alice", "/api/v1/events").header("last-event-id", "1");
    let request = request.header("accept", "text/event-stream").body(Raw::empty()).unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body().into_data_stream();
    let text = read(&mut body, 1).await;
    assert!(text.contains("id: 5\n") && text.contains("event: mainstay.widget.done\n"), "{text}");
    assert!(!text.contains("id: 1\n") && !text.contains("globex"), "{text}");
    world.transition("g", "done").await;
    world.transition("a", "more").await;
    let text = read(&mut body, 1).await;
    assert!(text.contains("id: 7\n") && !text.contains("id: 6\n"), "{text}");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let event: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!((&event["id"], &event["data"]["phase"]), (&"7".into(), &"more".into()));
}

async fn a_stream_gives_everything_to_a_slow_reader(fresh: &Fresh) {
    let world = World::on(fresh);
    world.create("a", "acme", "alice", "0").await;
    for n in 1..350 {
        world.transition("a", &n.to_string()).await;
    }
    let request =
        world.request("GET", "alice", "/api/v1/events").header("accept", "text/event-stream");
    let request = request.body(Raw::empty()).unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    let text = read(&mut response.into_body().into_data_stream(), 350).await;
    let ids: Vec<i64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("id: "))
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(ids, (1..=350).collect::<Vec<_>>());
}
