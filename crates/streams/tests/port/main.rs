//! Lists and watches against an API server that the test plays: what the real one does too rarely.
#![expect(clippy::unwrap_used, reason = "a test")]

mod health;
mod played;

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use streams::cluster::{Answer, Call, Cluster as _, Object, Refused, Told, Watched, What};
use streams::model::Place;
use streams::model::job::Fate;

use played::{Played, Reply};

fn request(name: &str, version: u32) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": format!("{name}-uid"),
            "resourceVersion": version.to_string(),
        },
        "spec": { "streamClass": "c", "streamId": "s" },
    })
}

fn page(items: &[Value], version: &str, next: &str) -> Reply {
    let metadata = json!({ "resourceVersion": version, "continue": next });
    Reply::json(200, &json!({ "metadata": metadata, "items": items }))
}

fn line(kind: &str, object: &Value) -> String {
    json!({ "type": kind, "object": object }).to_string() + "\n"
}

async fn next(told: &mut BoxStream<'static, Told>) -> Told {
    let told = tokio::time::timeout(Duration::from_secs(60), told.next()).await;
    told.expect("something is told").expect("a watch never ends")
}

fn names(told: &Told) -> Vec<String> {
    let name = |object: &Object| match object {
        Object::Request(request) => request.place.name.to_string(),
        other => panic!("{other:?}"),
    };
    match told {
        Told::All(objects) => objects.iter().map(name).collect(),
        Told::Is(object) => vec![name(object)],
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_list_comes_in_pages_and_a_cut_watch_goes_on_from_where_it_was() {
    let object = request("b", 12).to_string();
    let half = &object[..object.len() / 2];
    let played = Played::new([
        ("limit=500", page(&[request("a", 1)], "", "more+/=")),
        ("continue=more%2B%2F%3D", page(&[request("b", 2)], "10", "")),
        (
            "resourceVersion=10",
            Reply::Lines(vec![
                line("MODIFIED", &request("a", 11)),
                line("BOOKMARK", &json!({ "metadata": { "resourceVersion": "15" } })),
                format!("{{\"type\":\"MODIFIED\",\"object\":{half}"),
            ]),
        ),
        ("resourceVersion=15", Reply::Lines(vec![line("DELETED", &request("b", 16))])),
        ("resourceVersion=16", Reply::Lines(vec![line("ADDED", &request("c", 17))])),
    ])
    .await;
    let mut told = played.cluster().watch(Watched::Requests);
    assert_eq!(names(&next(&mut told).await), ["a", "b"]);
    assert_eq!(names(&next(&mut told).await), ["a"]);
    let Told::Gone(place, uid, _) = next(&mut told).await else { panic!("b is gone") };
    assert_eq!((place, &*uid), (Place::new("n", "b"), "b-uid"));
    assert_eq!(names(&next(&mut told).await), ["c"]);
    played.all_asked();
}

#[tokio::test]
async fn a_version_that_is_forgotten_means_to_list_again() {
    let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    let played = Played::new([
        ("limit=500", page(&[], "10", "")),
        ("resourceVersion=10", Reply::Lines(vec![line("ERROR", &gone)])),
        ("limit=500", page(&[request("a", 20)], "20", "")),
        ("resourceVersion=20", Reply::json(410, &gone)),
        ("limit=500", page(&[request("b", 30)], "30", "")),
        ("resourceVersion=30", Reply::Hang),
    ])
    .await;
    let mut told = played.cluster().watch(Watched::Requests);
    assert_eq!(names(&next(&mut told).await), Vec::<String>::new());
    assert_eq!(names(&next(&mut told).await), ["a"]);
    assert_eq!(names(&next(&mut told).await), ["b"]);
}

#[tokio::test]
async fn a_page_that_expired_means_to_begin_anew() {
    let played = Played::new([
        ("limit=500", page(&[request("a", 1)], "", "next")),
        ("continue=next", Reply::json(410, &json!({ "code": 410, "reason": "Expired" }))),
        ("limit=500", page(&[request("b", 2)], "10", "")),
    ])
    .await;
    let mut told = played.cluster().watch(Watched::Requests);
    assert_eq!(next(&mut told).await, Told::Trouble(Refused::Conflict));
    assert_eq!(names(&next(&mut told).await), ["b"]);
}

#[tokio::test]
async fn a_server_that_asks_to_wait_is_given_its_time() {
    let played = Played::new([
        ("limit=500", Reply::json(429, &json!({ "code": 429 })).with("retry-after", "1")),
        ("limit=500", page(&[], "10", "")),
    ])
    .await;
    let mut told = played.cluster().watch(Watched::Requests);
    let begun = std::time::Instant::now();
    let busy = Told::Trouble(Refused::Busy(Some(Duration::from_secs(1))));
    assert_eq!(next(&mut told).await, busy);
    assert_eq!(next(&mut told).await, Told::All(Vec::new()));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was asked to wait");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_spoils_no_other() {
    let mut odd = request("odd", 2);
    odd["spec"] = json!({ "streamClass": [1, 2], "streamId": {} });
    let played = Played::new([
        ("limit=500", page(&[request("a", 1), odd.clone(), request("b", 3)], "10", "")),
        (
            "resourceVersion=10",
            Reply::Lines(vec![line("MODIFIED", &odd), line("ADDED", &request("c", 11))]),
        ),
    ])
    .await;
    let mut told = played.cluster().watch(Watched::Requests);
    assert_eq!(names(&next(&mut told).await), ["a", "b"]);
    assert!(matches!(next(&mut told).await, Told::Gone(place, ..) if *place.name == *"odd"));
    assert_eq!(names(&next(&mut told).await), ["c"]);
}

#[tokio::test]
async fn a_kind_that_is_not_there_is_listed_when_its_crd_comes() {
    let crd = json!({ "metadata": { "name": "backfillrequests.streaming.sneaksanddata.com" } });
    let played = Played::new([
        ("limit=500", Reply::json(404, &json!({ "code": 404 }))),
        ("customresourcedefinitions?watch=true", Reply::Lines(vec![line("ADDED", &crd)])),
        ("limit=500", page(&[request("a", 1)], "10", "")),
    ])
    .await;
    let mut told = played.cluster().watch(Watched::Requests);
    assert_eq!(next(&mut told).await, Told::Trouble(Refused::NotFound));
    assert_eq!(names(&next(&mut told).await), ["a"]);
}

#[tokio::test]
async fn several_namespaces_are_told_of_as_one() {
    let at = |namespace: &str, name: &str, version: u32| {
        let mut request = request(name, version);
        request["metadata"]["namespace"] = json!(namespace);
        request
    };
    let played = Played::new([
        ("/namespaces/x/backfillrequests?limit", page(&[at("x", "a", 1)], "10", "")),
        ("/namespaces/y/backfillrequests?limit", page(&[at("y", "b", 1)], "10", "")),
        (
            "/namespaces/x/backfillrequests?watch",
            Reply::Lines(vec![line("ERROR", &json!({ "code": 410 }))]),
        ),
        ("/namespaces/x/backfillrequests?limit", page(&[at("x", "c", 2)], "20", "")),
    ])
    .await;
    let cluster = played.cluster().within(&["x".into(), "y".into()]);
    let mut told = cluster.watch(Watched::Requests);
    let mut all = names(&next(&mut told).await);
    all.sort();
    assert_eq!(all, ["a", "b"]);
    assert!(matches!(next(&mut told).await, Told::Gone(place, ..) if *place.name == *"a"));
    assert_eq!(names(&next(&mut told).await), ["c"]);
}

#[tokio::test]
async fn refusals_and_lost_answers_are_told_apart() {
    let exists = json!({ "code": 409, "reason": "AlreadyExists" });
    let played = Played::new([
        ("POST", Reply::json(409, &exists)),
        ("DELETE", Reply::json(409, &json!({ "code": 409, "reason": "Conflict" }))),
        ("PATCH", Reply::Cut),
        (
            "fieldSelector=involvedObject.uid%3Duid",
            Reply::json(
                200,
                &json!({ "items": [
            { "reason": "SuccessfulCreate", "message": "Created pod" },
            { "reason": "BackoffLimitExceeded", "message": "it failed" },
        ] }),
            ),
        ),
    ])
    .await;
    let cluster = played.cluster();
    let place = Place::new("n", "a");
    let create = Call::Create(What::Job, json!({ "metadata": { "namespace": "n" } }));
    assert_eq!(cluster.call(create).await, Err(Refused::Exists));
    let (what, uid) = (What::Job, "uid".into());
    let delete = Call::Delete { what, place: place.clone(), uid, foreground: true };
    assert_eq!(cluster.call(delete).await, Err(Refused::Conflict));
    let patch = json!({});
    let patch = Call::Patch { what: What::Request, place: place.clone(), patch, status: false };
    assert!(matches!(cluster.call(patch).await, Err(Refused::Away(_))));
    let failed = Fate::Failed("BackoffLimitExceeded: it failed".into());
    let fate = cluster.call(Call::Fate { place, uid: "uid".into() }).await;
    assert_eq!(fate, Ok(Answer::Fate(failed)));
    played.all_asked();
}
