//! Watches: agents and users learn of what changes, miss nothing, and see only what is theirs.

use std::time::{Duration, Instant};

use axum::body::Body;
use serde_json::{Value, json};

use crate::callers::CLUSTER;
use crate::stage::{Answer, Api, DINOSAUR, KAFKA, Stage};
use crate::stream::Stream;

fn of_agent(api: Api, query: &str) -> String {
    format!("{}/agent-clusters/{CLUSTER}/{}{query}", api.prefix, api.plural)
}

async fn watch(stage: &Stage, who: &str, path: &str) -> Stream {
    Stream::of(stage.open(stage.request(who, "GET", path).body(Body::empty()).unwrap()).await)
}

async fn watch_from(stage: &Stage, who: &str, path: &str, last: i64) -> Stream {
    let request = stage.request(who, "GET", path).header("last-event-id", last.to_string());
    Stream::of(stage.open(request.body(Body::empty()).unwrap()).await)
}

async fn delete(stage: &Stage, api: Api, who: &str, id: &str) {
    let path = api.path(&format!("/{id}?async=true"));
    assert_eq!(stage.call(who, "DELETE", &path, &Value::Null).await.status, 202);
}

fn revision(answer: &Answer) -> i64 {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let revision = answer.body["revision"].as_i64().expect("a revision");
    assert_eq!(answer.header("x-revision"), revision.to_string());
    revision
}

fn ids(answer: &Answer) -> Vec<&str> {
    answer.items().iter().filter_map(|item| item["id"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_learns_of_a_create_and_of_a_delete_without_asking_again() {
    let stage = Stage::new().await;
    for api in [KAFKA, DINOSAUR] {
        let mut agent = watch(&stage, "agent", &of_agent(api, "?watch=true")).await;
        let full = agent.expect("full").await;
        assert_eq!(full.data["count"], 0);
        assert!(full.id.is_some(), "nothing follows, so this is the last word");
        let id = stage.create(api, "alice", "demo").await;
        let sent = agent.expect("changed").await;
        assert_eq!((&sent.data["id"], &sent.data["spec"]["deleted"]), (&json!(id), &json!(false)));
        assert!(sent.id > full.id, "{:?} after {:?}", sent.id, full.id);
        let list = stage.agent(api).list().await;
        assert_eq!(list.items(), [sent.data], "the same as in the list");
        stage.agent(api).make_ready(&id).await;
        delete(&stage, api, "alice", &id).await;
        while !agent.expect("changed").await.data["spec"]["deleted"].as_bool().unwrap() {}
        stage.agent(api).make_gone(&id).await;
        assert_eq!(agent.expect("gone").await.data, json!({ "id": id }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sees_the_progress_of_instances_of_their_organisation_only() {
    let stage = Stage::new().await;
    let path = KAFKA.path("?watch=true");
    let mut alice = watch(&stage, "alice", &path).await;
    let mut mallory = watch(&stage, "mallory", &path).await;
    alice.expect("full").await;
    mallory.expect("full").await;
    let id = stage.create(KAFKA, "bob", "ours").await;
    alice.until(&id, "provisioning").await;
    stage.agent(KAFKA).make_ready(&id).await;
    let ready = alice.until(&id, "ready").await;
    let got = stage.get("alice", &KAFKA.path(&format!("/{id}"))).await;
    assert_eq!(ready.data, got.body, "as the instance itself is shown");
    let theirs = stage.create(KAFKA, "mallory", "theirs").await;
    assert_eq!(mallory.expect("changed").await.data["id"], theirs, "and nothing of ours before");
    delete(&stage, KAFKA, "bob", &id).await;
    stage.agent(KAFKA).make_gone(&id).await;
    loop {
        let event = alice.next().await.unwrap();
        assert_ne!(event.data["id"], theirs);
        if event.name == "gone" {
            assert_eq!(event.data["id"], id);
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resumes_misses_nothing_and_gets_nothing_twice() {
    let stage = Stage::new().await;
    let path = KAFKA.path("?watch=true");
    let mut alice = watch(&stage, "alice", &path).await;
    alice.expect("full").await;
    let first = stage.create_ready(KAFKA, "alice", "first").await;
    let going = stage.create_ready(KAFKA, "alice", "going").await;
    alice.until(&going, "ready").await;
    let last = alice.last.unwrap();
    drop(alice);

    delete(&stage, KAFKA, "alice", &going).await;
    stage.agent(KAFKA).make_gone(&going).await;
    let second = stage.create_ready(KAFKA, "alice", "second").await;
    let mut back = watch_from(&stage, "alice", &path, last).await;
    assert_eq!(back.expect("gone").await.data["id"], going);
    let changed = back.expect("changed").await;
    assert_eq!((&changed.data["id"], &changed.data["status"]), (&json!(second), &json!("ready")));
    let last = back.last.unwrap();
    drop(back);

    // Nothing happened since: the next thing that comes is new.
    let mut again = watch_from(&stage, "alice", &path, last).await;
    let body = json!({ "owner": "bob" });
    let patched = stage.call("alice", "PATCH", &KAFKA.path(&format!("/{first}")), &body).await;
    assert_eq!(patched.status, 200, "{}", patched.text);
    let changed = again.expect("changed").await;
    assert_eq!((&changed.data["id"], &changed.data["owner"]), (&json!(first), &json!("bob")));
    // `after` does the same for those who cannot send headers.
    let mut after = watch(&stage, "alice", &KAFKA.path(&format!("?watch=true&after={last}"))).await;
    assert_eq!(after.expect("changed").await, changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_full_list_only_the_last_event_has_an_id() {
    let stage = Stage::new().await;
    for name in ["a", "b", "c"] {
        stage.create_ready(KAFKA, "alice", name).await;
    }
    // From another store, or from too long ago: all there is.
    for query in ["?watch=true", "?watch=true&after=999999999", "?watch=true&after=0"] {
        let mut alice = watch(&stage, "alice", &KAFKA.path(query)).await;
        let full = alice.expect("full").await;
        assert_eq!((full.id, &full.data["count"]), (None, &json!(3)), "{query}");
        let mut names = Vec::new();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let changed = alice.expect("changed").await;
            names.push(changed.data["name"].as_str().unwrap().to_owned());
            seen.push(changed.id);
        }
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(seen, [None, None, full.data["revision"].as_i64()], "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_answers_when_something_is_new() {
    let stage = Stage::new().await;
    let first = stage.get("agent", &of_agent(KAFKA, "?wait=0")).await;
    assert_eq!((&first.body["full"], ids(&first).len()), (&json!(true), 0));
    let mut after = revision(&first);

    let begun = Instant::now();
    let path = of_agent(KAFKA, &format!("?wait=60&after={after}"));
    let (sent, id) = tokio::join!(stage.get("agent", &path), stage.create(KAFKA, "alice", "demo"));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!((ids(&sent), &sent.body["full"]), (vec![id.as_str()], &json!(false)));
    assert_eq!(sent.body["kind"], "ManagedKafkaList");
    after = revision(&sent);

    // What was sent already is not sent again.
    let nothing = stage.get("agent", &of_agent(KAFKA, &format!("?wait=0&after={after}"))).await;
    assert_eq!((ids(&nothing).len(), &nothing.body["gone"]), (0, &json!([])));
    let begun = Instant::now();
    let path = of_agent(KAFKA, &format!("?wait=1&after={after}"));
    let nothing = stage.get("agent", &path).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "it waits");
    assert_eq!(ids(&nothing).len(), 0);
    assert!(revision(&nothing) >= after);

    stage.agent(KAFKA).make_ready(&id).await;
    let path = KAFKA.path(&format!("?wait=60&after={after}"));
    let of_user = stage.get("alice", &path).await;
    assert_eq!(of_user.body["kind"], "KafkaRequestList");
    assert_eq!((ids(&of_user), &of_user.body["total"]), (vec![id.as_str()], &json!(1)));
    after = revision(&of_user);
    delete(&stage, KAFKA, "alice", &id).await;
    stage.agent(KAFKA).make_gone(&id).await;
    let gone = stage.get("alice", &KAFKA.path(&format!("?wait=60&after={after}"))).await;
    assert_eq!((ids(&gone).len(), &gone.body["gone"]), (0, &json!([id])));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_list_can_be_asked_for_what_changed_after_a_revision() {
    let stage = Stage::new().await;
    stage.create_ready(KAFKA, "alice", "first").await;
    let list = stage.agent(KAFKA).list().await;
    assert_eq!(list.items().len(), 1);
    assert!(list.body.get("revision").is_none(), "the plain list is as it always was");
    let after: i64 = list.header("x-revision").parse().unwrap();
    let second = stage.create_ready(KAFKA, "alice", "second").await;
    let delta = stage.get("agent", &of_agent(KAFKA, &format!("?after={after}"))).await;
    assert_eq!((ids(&delta), &delta.body["full"]), (vec![second.as_str()], &json!(false)));
    assert!(revision(&delta) > after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_known_is_not_sent_again() {
    let stage = Stage::new().await;
    stage.create_ready(KAFKA, "alice", "first").await;
    let ask = async |who: &str, path: &str, tag: &str| {
        let request = stage.request(who, "GET", path).header("if-none-match", tag);
        stage.send(request.body(Body::empty()).unwrap()).await
    };
    for (who, path) in [("agent", of_agent(KAFKA, "")), ("alice", KAFKA.path("?size=5"))] {
        let list = stage.get(who, &path).await;
        let tag = list.header("etag").to_owned();
        assert!(tag.starts_with('"') && tag.len() > 3, "{tag}");
        let same = ask(who, &path, &tag).await;
        assert_eq!((same.status, same.text.as_str(), same.header("etag")), (304, "", tag.as_str()));
        assert_eq!(ask(who, &path, &format!("\"x\", W/{tag}")).await.status, 304);
        assert_eq!(ask(who, &path, "\"1-x\"").await.status, 200);
        stage.create_ready(KAFKA, "bob", if who == "agent" { "second" } else { "third" }).await;
        let changed = ask(who, &path, &tag).await;
        assert_eq!(changed.status, 200);
        assert_ne!(changed.header("etag"), tag);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_watched_is_refused_by_name() {
    let stage = Stage::new().await;
    for (query, what) in [
        ("?watch=maybe", "watch"),
        ("?wait=61", "wait"),
        ("?wait=soon", "wait"),
        ("?watch=true&after=x", "after"),
        ("?watch=true&search=name%20%3D%20x", "search"),
    ] {
        let refused = stage.get("alice", &KAFKA.path(query)).await;
        assert_eq!((refused.status, refused.code()), (400, 17), "{query}: {}", refused.text);
        assert!(refused.body["reason"].as_str().unwrap().contains(what), "{}", refused.text);
    }
    let plain = stage.get("alice", &KAFKA.path("?watch=false")).await;
    assert_eq!((plain.status, &plain.body["kind"]), (200, &json!("KafkaRequestList")));
    let other = stage.get("other-agent", &of_agent(KAFKA, "?watch=true")).await;
    assert_eq!((other.status, other.code()), (404, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_ends_its_watches_at_once() {
    let stage = Stage::new().await;
    let (url, stop, ended) = stage.serve().await;
    let client = stage.app.outbound.target("tests");
    let ask = |query: &str| {
        let url = format!("{url}{}", of_agent(KAFKA, query)).parse().unwrap();
        client.request(reqwest::Method::GET, url).bearer_auth(stage.token("agent")).send()
    };
    let mut stream = Stream::of_socket(ask("?watch=true").await.unwrap());
    let after = stream.expect("full").await.id.unwrap();
    let query = format!("?wait=60&after={after}");
    let waiting = tokio::spawn(ask(&query));
    // A create is seen over the socket, too; by then the long poll is on its way, or answered.
    stage.create(KAFKA, "alice", "demo").await;
    let after = stream.expect("changed").await.id.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    let query = format!("?wait=60&after={after}");
    let waiting = tokio::spawn(ask(&query));
    let begun = Instant::now();
    stop.cancel();
    assert_eq!(stream.next().await, None);
    // It may also have come too late to be let in.
    if let Ok(answer) = waiting.await.unwrap() {
        assert_eq!(answer.status(), 200);
    }
    ended.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_gets_the_state_at_the_time_it_reads() {
    let stage = Stage::new().await;
    let mut slow = watch(&stage, "alice", &KAFKA.path("?watch=true")).await;
    slow.expect("full").await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    let path = KAFKA.path(&format!("/{id}"));
    for owner in ["bob", "carol", "alice"] {
        let patched = stage.call("carol", "PATCH", &path, &json!({ "owner": owner })).await;
        assert_eq!(patched.status, 200, "{}", patched.text);
    }
    assert_eq!(stage.get("alice", &path).await.body["owner"], "alice", "it is known by now");
    // Nothing was kept for them meanwhile: what comes is the newest.
    let seen = slow.expect("changed").await;
    assert_eq!((&seen.data["status"], &seen.data["owner"]), (&json!("ready"), &json!("alice")));
    stage.create(KAFKA, "alice", "next").await;
    assert_eq!(slow.expect("changed").await.data["name"], "next");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missed_while_many_change_at_once_on_postgres() {
    if let Some(stage) = Stage::on_postgres().await {
        many_change_at_once(&stage).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missed_while_many_change_at_once() {
    many_change_at_once(&Stage::new().await).await;
}

async fn many_change_at_once(stage: &Stage) {
    let path = KAFKA.path("?watch=true");
    let mut alice = watch(stage, "alice", &path).await;
    alice.expect("full").await;
    let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let create = names.iter().map(|name| stage.create(KAFKA, "alice", name));
    let all = futures::future::join_all(create).await;
    let mut open = all.clone();
    let mut last = 0;
    let mut seen = 0;
    let agent = async {
        for id in all {
            stage.agent(KAFKA).make_ready(&id).await;
        }
    };
    let follow = async {
        while !open.is_empty() {
            let event = alice.next().await.unwrap();
            seen += 1;
            if event.data["status"] == "ready" {
                open.retain(|id| event.data["id"] != *id);
            }
            if let Some(id) = event.id {
                assert!(id >= last, "revisions only grow");
                last = id;
            }
            // Comes back now and then, as a client whose connection breaks would.
            if seen % 7 == 0 {
                alice = watch_from(stage, "alice", &path, last).await;
            }
        }
    };
    tokio::join!(agent, follow);
}
