//! Objects, search and waiting for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body as Raw;
use kernel::change::{Change, Edge, Write};
use kernel::{Key, Object};
use serde_json::Value;
use testkit::on_every_store;
use testkit::stores::Fresh;

use crate::server::{TestResponse, TestServer, eventually};

on_every_store!(
    callers_see_exactly_what_is_visible_to_them,
    no_route_reveals_another_organisation_s_object,
    lists_are_filtered_and_come_in_pages,
    a_search_names_what_it_cannot_parse,
    an_object_is_sent_again_only_if_it_changed,
    ids_that_are_paths_are_rejected,
    deleted_objects_are_returned_only_on_request,
    a_graph_shows_only_visible_neighbours,
    a_wait_ends_when_the_object_reaches_the_phase,
    a_wait_for_a_generation_ends_when_it_is_observed,
    a_wait_ends_when_the_object_is_deleted_or_at_the_timeout,
    no_wake_up_is_lost_between_reading_and_waiting,
);

fn names(response: &TestResponse) -> Vec<&str> {
    let objects = response.body["objects"].as_array().expect("objects");
    objects.iter().map(|object| object["key"].as_str().unwrap()).collect()
}

async fn three(fresh: &Fresh) -> TestServer {
    let server = TestServer::on(fresh);
    server.create("a", "acme", "alice", "ready").await;
    server.create("b", "acme", "bob", "failed").await;
    server.create("g", "globex", "carol", "ready").await;
    server.create("d", "", "dave", "ready").await;
    server.create("e", "", "eve", "ready").await;
    server
}

async fn callers_see_exactly_what_is_visible_to_them(fresh: &Fresh) {
    let server = three(fresh).await;
    let table = [
        ("alice", vec!["widget/b", "widget/a"]),
        ("carol", vec!["widget/g"]),
        ("dave", vec!["widget/d"]),
        ("admin", vec!["widget/e", "widget/d", "widget/g", "widget/b", "widget/a"]),
    ];
    for (token, keys) in table {
        assert_eq!(names(&server.get(token, "/api/v1/objects").await), keys, "{token}");
        assert_eq!(names(&server.get(token, "/api/v1/search?q=blue").await), keys, "{token}");
        for key in ["widget/a", "widget/g", "widget/d", "widget/e"] {
            let status = server.get(token, &format!("/api/v1/objects/{key}")).await.status;
            assert_eq!(status, if keys.contains(&key) { 200 } else { 404 }, "{token} {key}");
        }
    }
    let others = server.get("alice", "/api/v1/objects?org=globex").await;
    assert_eq!(names(&others), Vec::<&str>::new());
    let others = server.get("dave", "/api/v1/search?q=owner:eve").await;
    assert_eq!(names(&others), Vec::<&str>::new());
}

async fn no_route_reveals_another_organisation_s_object(fresh: &Fresh) {
    let server = three(fresh).await;
    server.transition("b", "deleted").await;
    for who in ["carol", "dave"] {
        for id in ["a", "b", "none"] {
            let object = format!("/api/v1/objects/widget/{id}");
            for path in [
                object.clone(),
                format!("{object}?deleted=true"),
                format!("{object}?wait_phase=ready&timeout_s=60"),
                format!("{object}?wait_generation=9&timeout_s=60&deleted=true"),
                format!("{object}/graph"),
            ] {
                let response = server.get(who, &path).await;
                assert_eq!((response.status, response.error("code")), (404, "not_found"), "{path}");
                let message = format!("widget/{id} does not exist");
                assert_eq!(response.error("message"), message, "whether or not it does");
            }
            let events = format!("/api/v1/events?object=widget/{id}");
            assert_eq!(server.get(who, &events).await.body["events"], serde_json::json!([]));
        }
        for path in ["/api/v1/objects?org=acme&deleted=true", "/api/v1/search?q=owner:alice"] {
            assert_eq!(names(&server.get(who, path).await), Vec::<&str>::new(), "{path}");
        }
        for path in ["/api/v1/work", "/api/v1/audit", "/api/v1/audit/head"] {
            assert_eq!(server.get(who, path).await.status, 403, "{path}");
        }
        for act in ["retry", "pause", "resume"] {
            let path = format!("/api/v1/work/widget/a/{act}");
            assert_eq!(server.post(who, &path, "{}").await.status, 403, "{path}");
        }
    }
}

async fn lists_are_filtered_and_come_in_pages(fresh: &Fresh) {
    let server = three(fresh).await;
    let get = async |query: &str| server.get("admin", &format!("/api/v1/objects?{query}")).await;
    assert_eq!(names(&get("phase=failed").await), ["widget/b"]);
    assert_eq!(names(&get("owner=carol&kind=widget").await), ["widget/g"]);
    assert_eq!(names(&get("name=Blue%20a").await), ["widget/a"]);
    assert_eq!(names(&get("label=team%3Dcore&label=no%3Dne").await), Vec::<&str>::new());
    assert_eq!(names(&get("label=team%3Dcore").await).len(), 5);
    let first = get("limit=3").await;
    assert_eq!(names(&first), ["widget/e", "widget/d", "widget/g"]);
    let second = get(&format!("limit=3&after={}", first.body["next"])).await;
    assert_eq!(names(&second), ["widget/b", "widget/a"]);
    assert!(second.body.get("next").is_none());
    for (query, field) in
        [("limit=0", "limit"), ("limit=501", "limit"), ("label=x", "label"), ("page=-1", "page")]
    {
        let response = get(query).await;
        assert_eq!((response.status, response.error("field")), (400, field), "{query}");
    }
}

async fn a_search_names_what_it_cannot_parse(fresh: &Fresh) {
    let server = three(fresh).await;
    let response = server.get("alice", "/api/v1/search?q=colour:blue").await;
    assert_eq!((response.status, response.error("field")), (400, "q"));
    assert_eq!(server.get("alice", "/api/v1/search").await.error("message"), "q: is missing");
    let long = format!("/api/v1/search?q={}", "x".repeat(1001));
    assert_eq!(server.get("alice", &long).await.error("field"), "q");
    let found = server.get("alice", "/api/v1/search?q=blu%20phase:ready").await;
    assert_eq!(names(&found), ["widget/a"]);
}

async fn an_object_is_sent_again_only_if_it_changed(fresh: &Fresh) {
    let server = three(fresh).await;
    let first = server.get("alice", "/api/v1/objects/widget/a").await;
    assert_eq!((first.status, first.header("etag")), (200, "\"1\""));
    assert_eq!(first.body["labels"]["team"], "core");
    let again = async |tag: &str| {
        let request = server.request("GET", "alice", "/api/v1/objects/widget/a");
        server.send(request.header("if-none-match", tag).body(Raw::empty()).unwrap()).await
    };
    let same = again("\"9\", W/\"1\"").await;
    assert_eq!((same.status, same.text.as_str(), same.header("etag")), (304, "", "\"1\""));
    server.transition("a", "updating").await;
    assert_eq!(again("\"1\"").await.status, 200);
}

async fn ids_that_are_paths_are_rejected(fresh: &Fresh) {
    let server = three(fresh).await;
    for path in ["widget/..%2Fetc", "widget/%00", "wid%20get/a", "widget/%F0%9F%98%80"] {
        let response = server.get("alice", &format!("/api/v1/objects/{path}")).await;
        assert_eq!((response.status, response.error("field")), (400, "key"), "{path}");
    }
    let response = server.get("alice", "/api/v1/objects/widget/%FF").await;
    assert_eq!((response.status, response.error("field")), (400, "path"));
}

async fn deleted_objects_are_returned_only_on_request(fresh: &Fresh) {
    let server = three(fresh).await;
    server.transition("a", "deleted").await;
    assert_eq!(server.get("alice", "/api/v1/objects/widget/a").await.status, 404);
    let kept = server.get("alice", "/api/v1/objects/widget/a?deleted=true").await;
    assert_eq!(kept.status, 200);
    assert!(kept.body["deleted_at"].is_string());
    assert_eq!(names(&server.get("alice", "/api/v1/objects").await), ["widget/b"]);
}

async fn a_graph_shows_only_visible_neighbours(fresh: &Fresh) {
    let server = three(fresh).await;
    let key = |id| Key::new("widget", id);
    let mut object = server.object("a").await;
    object.name = "Hub".into();
    let write = Some(Write::update(object, "updated"));
    let depends_on = Some(vec![Edge::new(key("b"), "placed-on"), key("g").into()]);
    server.commit(Change { write, depends_on, ..Change::default() }).await;
    let graph = server.get("alice", "/api/v1/objects/widget/a/graph").await.body;
    assert_eq!(graph["dependencies"].as_array().unwrap().len(), 1, "not another org's: {graph}");
    assert_eq!(graph["dependencies"][0]["phase"], "failed");
    assert_eq!(graph["dependencies"][0]["role"], "placed-on");
    let graph = server.get("bob", "/api/v1/objects/widget/b/graph").await.body;
    assert_eq!(graph["dependents"][0]["name"], "Hub");
    assert_eq!(graph["dependents"][0]["role"], "placed-on");
    assert_eq!(server.get("carol", "/api/v1/objects/widget/a/graph").await.status, 404);

    // c depends on a, and so on b; what another organisation has between them stays hidden.
    let c = Object::new(key("c"), "acme", "alice", "Far", "ready", server.now());
    let write = Some(Write::create(c, "created"));
    let depends_on = Some(vec![key("a").into()]);
    server.commit(Change { write, depends_on, ..Change::default() }).await;
    let ids = |nodes: &Value| -> Vec<String> {
        let nodes = nodes.as_array().unwrap().iter();
        nodes.map(|node| node["key"].as_str().unwrap().to_owned()).collect()
    };
    let graph = server.get("bob", "/api/v1/objects/widget/b/graph?transitive=true").await.body;
    assert_eq!(ids(&graph["dependents"]), ["widget/c", "widget/a"]);
    assert_eq!(graph["dependents"][1]["role"], "placed-on");
    assert!(graph["dependents"][0]["role"].is_null(), "only through another: {graph}");
    assert_eq!((ids(&graph["dependencies"]), &graph["truncated"]), (vec![], &false.into()));
    let graph = server.get("alice", "/api/v1/objects/widget/c/graph?transitive=true").await.body;
    assert_eq!(ids(&graph["dependencies"]), ["widget/b", "widget/a"], "not another org's: {graph}");
    let graph = server.get("alice", "/api/v1/objects/widget/c/graph").await.body;
    assert_eq!(ids(&graph["dependencies"]), ["widget/a"]);
    let used = server.get("alice", "/api/v1/search?q=used-by:widget/c").await;
    assert_eq!(names(&used), ["widget/b", "widget/a"]);
}

/// Starts a wait and gives it time to be waiting.
async fn waiting(server: &Arc<TestServer>, query: &str) -> tokio::task::JoinHandle<TestResponse> {
    let path = format!("/api/v1/objects/widget/a?{query}");
    let waiter = server.clone();
    let task = tokio::spawn(async move { waiter.get("alice", &path).await });
    eventually("it waits", async || {
        server.get("", "/metrics").await.text.contains("mainstay_http_in_flight 2")
    })
    .await;
    task
}

async fn a_wait_ends_when_the_object_reaches_the_phase(fresh: &Fresh) {
    let server = Arc::new(three(fresh).await);
    let begun = Instant::now();
    let task = waiting(&server, "wait_phase=done,stopped&timeout_s=60").await;
    server.transition("b", "done").await;
    server.transition("a", "working").await;
    tokio::task::yield_now().await;
    assert!(!task.is_finished(), "neither another object nor another phase ends it");
    server.transition("a", "stopped").await;
    assert_eq!(task.await.unwrap().body["phase"], "stopped");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

async fn a_wait_for_a_generation_ends_when_it_is_observed(fresh: &Fresh) {
    let server = Arc::new(three(fresh).await);
    let now = server.get("alice", "/api/v1/objects/widget/a?wait_generation=0").await;
    assert_eq!(now.status, 200, "reached already");
    let task = waiting(&server, "wait_generation=1&timeout_s=60").await;
    server.transition("a", "ready").await;
    assert_eq!(task.await.unwrap().body["observed"], 1);
}

async fn a_wait_ends_when_the_object_is_deleted_or_at_the_timeout(fresh: &Fresh) {
    let server = Arc::new(three(fresh).await);
    let over = server.get("alice", "/api/v1/objects/widget/a?wait_phase=never&timeout_s=0").await;
    assert_eq!((over.status, &over.body["phase"]), (200, &"ready".into()));
    let task = waiting(&server, "wait_phase=never&timeout_s=60").await;
    server.transition("a", "deleted").await;
    assert!(task.await.unwrap().body["deleted_at"].is_string());
    let long = server.get("alice", "/api/v1/objects/widget/b?wait_phase=x&timeout_s=301").await;
    assert_eq!((long.status, long.error("field")), (400, "timeout_s"));
    let missing = server.get("alice", "/api/v1/objects/widget/none?wait_phase=x").await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn waiting_requests_do_not_keep_others_out() {
    let config = kernel::http::Config { concurrency_max: 1, ..Default::default() };
    let server = Arc::new(TestServer::with(config, kernel::Ambient::system()));
    server.create("a", "acme", "alice", "ready").await;
    let task = waiting(&server, "wait_phase=done&timeout_s=60").await;
    assert_eq!(server.get("alice", "/api/v1/objects").await.status, 200);
    server.transition("a", "done").await;
    assert_eq!(task.await.unwrap().status, 200);
}

async fn no_wake_up_is_lost_between_reading_and_waiting(fresh: &Fresh) {
    let server = TestServer::on(fresh);
    server.create("a", "acme", "alice", "0").await;
    let key = Key::new("widget", "a");
    for round in 1..200 {
        let phase = round.to_string();
        let reached = |object: &Object| object.phase == phase;
        let never = std::future::pending();
        let wait = kernel::wait::until(server.app.tail(), &key, never, reached);
        // Without a wake-up it would be found only when the waiter looks again by itself.
        let wait = tokio::time::timeout(kernel::event_tail::RECHECK * 4 / 5, wait);
        let (found, ()) = tokio::join!(wait, server.transition("a", &phase));
        assert_eq!(found.expect("in time").unwrap().unwrap().phase, phase);
    }
}
