//! Objects, search and waiting for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body as Raw;
use kernel::change::{Change, Write};
use kernel::{Key, Object};
use testkit::on_every_store;
use testkit::stores::Fresh;

use crate::world::{Answer, World, eventually};

on_every_store!(
    everyone_sees_what_is_theirs_and_nothing_else,
    no_route_tells_of_another_organisation_s_object,
    lists_are_filtered_and_come_in_pages,
    a_search_says_what_it_does_not_understand,
    an_object_is_sent_again_only_if_it_changed,
    ids_that_are_paths_are_refused,
    what_was_deleted_is_gone_unless_asked_for,
    a_graph_shows_neighbours_that_the_caller_sees,
    a_wait_ends_as_soon_as_the_object_is_so_far,
    a_wait_for_a_generation_ends_when_the_status_speaks_of_it,
    a_wait_ends_when_the_object_is_deleted_or_the_time_is_over,
    no_wake_up_is_lost_between_reading_and_waiting,
);

fn names(answer: &Answer) -> Vec<&str> {
    let objects = answer.body["objects"].as_array().expect("objects");
    objects.iter().map(|object| object["key"].as_str().unwrap()).collect()
}

async fn three(fresh: &Fresh) -> World {
    let world = World::on(fresh);
    world.create("a", "acme", "alice", "ready").await;
    world.create("b", "acme", "bob", "failed").await;
    world.create("g", "globex", "carol", "ready").await;
    world.create("d", "", "dave", "ready").await;
    world.create("e", "", "eve", "ready").await;
    world
}

async fn everyone_sees_what_is_theirs_and_nothing_else(fresh: &Fresh) {
    let world = three(fresh).await;
    let table = [
        ("alice", vec!["widget/b", "widget/a"]),
        ("carol", vec!["widget/g"]),
        ("dave", vec!["widget/d"]),
        ("admin", vec!["widget/e", "widget/d", "widget/g", "widget/b", "widget/a"]),
    ];
    for (token, keys) in table {
        assert_eq!(names(&world.get(token, "/api/v1/objects").await), keys, "{token}");
        assert_eq!(names(&world.get(token, "/api/v1/search?q=blue").await), keys, "{token}");
        for key in ["widget/a", "widget/g", "widget/d", "widget/e"] {
            let status = world.get(token, &format!("/api/v1/objects/{key}")).await.status;
            assert_eq!(status, if keys.contains(&key) { 200 } else { 404 }, "{token} {key}");
        }
    }
    let others = world.get("alice", "/api/v1/objects?org=globex").await;
    assert_eq!(names(&others), Vec::<&str>::new());
    let others = world.get("dave", "/api/v1/search?q=owner:eve").await;
    assert_eq!(names(&others), Vec::<&str>::new());
}

async fn no_route_tells_of_another_organisation_s_object(fresh: &Fresh) {
    let world = three(fresh).await;
    world.transition("b", "deleted").await;
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
                let answer = world.get(who, &path).await;
                assert_eq!((answer.status, answer.error("code")), (404, "not_found"), "{path}");
                let message = format!("widget/{id} does not exist");
                assert_eq!(answer.error("message"), message, "whether or not it does");
            }
            let events = format!("/api/v1/events?object=widget/{id}");
            assert_eq!(world.get(who, &events).await.body["events"], serde_json::json!([]));
        }
        for path in ["/api/v1/objects?org=acme&deleted=true", "/api/v1/search?q=owner:alice"] {
            assert_eq!(names(&world.get(who, path).await), Vec::<&str>::new(), "{path}");
        }
        for path in ["/api/v1/work", "/api/v1/audit", "/api/v1/audit/head"] {
            assert_eq!(world.get(who, path).await.status, 403, "{path}");
        }
        for act in ["retry", "pause", "resume"] {
            let path = format!("/api/v1/work/widget/a/{act}");
            assert_eq!(world.post(who, &path, "{}").await.status, 403, "{path}");
        }
    }
}

async fn lists_are_filtered_and_come_in_pages(fresh: &Fresh) {
    let world = three(fresh).await;
    let get = async |query: &str| world.get("admin", &format!("/api/v1/objects?{query}")).await;
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
        let answer = get(query).await;
        assert_eq!((answer.status, answer.error("field")), (400, field), "{query}");
    }
}

async fn a_search_says_what_it_does_not_understand(fresh: &Fresh) {
    let world = three(fresh).await;
    let answer = world.get("alice", "/api/v1/search?q=colour:blue").await;
    assert_eq!((answer.status, answer.error("field")), (400, "q"));
    assert_eq!(world.get("alice", "/api/v1/search").await.error("message"), "q: is missing");
    let long = format!("/api/v1/search?q={}", "x".repeat(1001));
    assert_eq!(world.get("alice", &long).await.error("field"), "q");
    let found = world.get("alice", "/api/v1/search?q=blu%20phase:ready").await;
    assert_eq!(names(&found), ["widget/a"]);
}

async fn an_object_is_sent_again_only_if_it_changed(fresh: &Fresh) {
    let world = three(fresh).await;
    let first = world.get("alice", "/api/v1/objects/widget/a").await;
    assert_eq!((first.status, first.header("etag")), (200, "\"1\""));
    assert_eq!(first.body["labels"]["team"], "core");
    let again = async |tag: &str| {
        let request = world.request("GET", "alice", "/api/v1/objects/widget/a");
        world.send(request.header("if-none-match", tag).body(Raw::empty()).unwrap()).await
    };
    let same = again("\"9\", W/\"1\"").await;
    assert_eq!((same.status, same.text.as_str(), same.header("etag")), (304, "", "\"1\""));
    world.transition("a", "updating").await;
    assert_eq!(again("\"1\"").await.status, 200);
}

async fn ids_that_are_paths_are_refused(fresh: &Fresh) {
    let world = three(fresh).await;
    for path in ["widget/..%2Fetc", "widget/%00", "wid%20get/a", "widget/%F0%9F%98%80"] {
        let answer = world.get("alice", &format!("/api/v1/objects/{path}")).await;
        assert_eq!((answer.status, answer.error("field")), (400, "key"), "{path}");
    }
    let answer = world.get("alice", "/api/v1/objects/widget/%FF").await;
    assert_eq!((answer.status, answer.error("field")), (400, "path"));
}

async fn what_was_deleted_is_gone_unless_asked_for(fresh: &Fresh) {
    let world = three(fresh).await;
    world.transition("a", "deleted").await;
    assert_eq!(world.get("alice", "/api/v1/objects/widget/a").await.status, 404);
    let kept = world.get("alice", "/api/v1/objects/widget/a?deleted=true").await;
    assert_eq!(kept.status, 200);
    assert!(kept.body["deleted_at"].is_string());
    assert_eq!(names(&world.get("alice", "/api/v1/objects").await), ["widget/b"]);
}

async fn a_graph_shows_neighbours_that_the_caller_sees(fresh: &Fresh) {
    let world = three(fresh).await;
    let key = |id| Key::new("widget", id);
    let mut object = world.object("a").await;
    object.name = "Hub".into();
    let write = Some(Write::Update(object));
    let depends_on = Some(vec![key("b"), key("g")]);
    world.commit(Change { write, depends_on, ..Change::default() }).await;
    let graph = world.get("alice", "/api/v1/objects/widget/a/graph").await.body;
    assert_eq!(graph["dependencies"].as_array().unwrap().len(), 1, "not another org's: {graph}");
    assert_eq!(graph["dependencies"][0]["phase"], "failed");
    let graph = world.get("bob", "/api/v1/objects/widget/b/graph").await.body;
    assert_eq!(graph["dependents"][0]["name"], "Hub");
    assert_eq!(world.get("carol", "/api/v1/objects/widget/a/graph").await.status, 404);
}

/// Starts a wait and gives it time to be waiting.
async fn waiting(world: &Arc<World>, query: &str) -> tokio::task::JoinHandle<Answer> {
    let path = format!("/api/v1/objects/widget/a?{query}");
    let waiter = world.clone();
    let task = tokio::spawn(async move { waiter.get("alice", &path).await });
    eventually("it waits", async || {
        world.get("", "/metrics").await.text.contains("mainstay_http_in_flight 2")
    })
    .await;
    task
}

async fn a_wait_ends_as_soon_as_the_object_is_so_far(fresh: &Fresh) {
    let world = Arc::new(three(fresh).await);
    let begun = Instant::now();
    let task = waiting(&world, "wait_phase=done,stopped&timeout_s=60").await;
    world.transition("b", "done").await;
    world.transition("a", "working").await;
    tokio::task::yield_now().await;
    assert!(!task.is_finished(), "neither another object nor another phase ends it");
    world.transition("a", "stopped").await;
    assert_eq!(task.await.unwrap().body["phase"], "stopped");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

async fn a_wait_for_a_generation_ends_when_the_status_speaks_of_it(fresh: &Fresh) {
    let world = Arc::new(three(fresh).await);
    let now = world.get("alice", "/api/v1/objects/widget/a?wait_generation=0").await;
    assert_eq!(now.status, 200, "reached already");
    let task = waiting(&world, "wait_generation=1&timeout_s=60").await;
    world.transition("a", "ready").await;
    assert_eq!(task.await.unwrap().body["observed"], 1);
}

async fn a_wait_ends_when_the_object_is_deleted_or_the_time_is_over(fresh: &Fresh) {
    let world = Arc::new(three(fresh).await);
    let over = world.get("alice", "/api/v1/objects/widget/a?wait_phase=never&timeout_s=0").await;
    assert_eq!((over.status, &over.body["phase"]), (200, &"ready".into()));
    let task = waiting(&world, "wait_phase=never&timeout_s=60").await;
    world.transition("a", "deleted").await;
    assert!(task.await.unwrap().body["deleted_at"].is_string());
    let long = world.get("alice", "/api/v1/objects/widget/b?wait_phase=x&timeout_s=301").await;
    assert_eq!((long.status, long.error("field")), (400, "timeout_s"));
    let missing = world.get("alice", "/api/v1/objects/widget/none?wait_phase=x").await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn waiters_leave_room_for_work() {
    let config = kernel::http::Config { concurrency_max: 1, ..Default::default() };
    let world = Arc::new(World::with(config, kernel::Ambient::system()));
    world.create("a", "acme", "alice", "ready").await;
    let task = waiting(&world, "wait_phase=done&timeout_s=60").await;
    assert_eq!(world.get("alice", "/api/v1/objects").await.status, 200);
    world.transition("a", "done").await;
    assert_eq!(task.await.unwrap().status, 200);
}

async fn no_wake_up_is_lost_between_reading_and_waiting(fresh: &Fresh) {
    let world = World::on(fresh);
    world.create("a", "acme", "alice", "0").await;
    let key = Key::new("widget", "a");
    for round in 1..200 {
        let phase = round.to_string();
        let reached = |object: &Object| object.phase == phase;
        let never = std::future::pending();
        let wait = kernel::wait::until(world.store.as_ref(), &key, never, reached);
        // Without a wake-up it would be found only when the waiter looks again by itself.
        let wait = tokio::time::timeout(kernel::wait::RECHECK * 4 / 5, wait);
        let (found, ()) = tokio::join!(wait, world.transition("a", &phase));
        assert_eq!(found.expect("in time").unwrap().unwrap().phase, phase);
    }
}
