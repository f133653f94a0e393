//! Lists and watches against a scripted API server: situations that a real one rarely produces.
#![expect(clippy::unwrap_used, reason = "a test")]

mod health;
mod played;

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use streams::model::NamespacedName;
use streams::model::job::JobResult;
use streams::model::watch::{ApiError, Object, Resource, WatchEvent};
use streams::ports::api_server::{ApiServer as _, Request, Response};

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

async fn next(event: &mut BoxStream<'static, WatchEvent>) -> WatchEvent {
    let event = tokio::time::timeout(Duration::from_secs(60), event.next()).await;
    event.expect("there is an event").expect("a watch never ends")
}

fn names(event: &WatchEvent) -> Vec<String> {
    let name = |object: &Object| match object {
        Object::BackfillRequest(request) => request.object_name.name.to_string(),
        other => panic!("{other:?}"),
    };
    match event {
        WatchEvent::Snapshot(objects) => objects.iter().map(name).collect(),
        WatchEvent::Upserted(object) => vec![name(object)],
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_list_is_paged_and_an_interrupted_watch_resumes() {
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
    let mut event = played.api().watch(Resource::BackfillRequests);
    assert_eq!(names(&next(&mut event).await), ["a", "b"]);
    assert_eq!(names(&next(&mut event).await), ["a"]);
    let WatchEvent::Deleted(object_name, uid, _) = next(&mut event).await else {
        panic!("b is gone")
    };
    assert_eq!((object_name, &*uid), (NamespacedName::new("n", "b"), "b-uid"));
    assert_eq!(names(&next(&mut event).await), ["c"]);
    played.all_asked();
}

#[tokio::test]
async fn an_expired_resource_version_causes_another_list() {
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
    let mut event = played.api().watch(Resource::BackfillRequests);
    assert_eq!(names(&next(&mut event).await), Vec::<String>::new());
    assert_eq!(names(&next(&mut event).await), ["a"]);
    assert_eq!(names(&next(&mut event).await), ["b"]);
}

#[tokio::test]
async fn an_expired_page_restarts_the_list() {
    let played = Played::new([
        ("limit=500", page(&[request("a", 1)], "", "next")),
        ("continue=next", Reply::json(410, &json!({ "code": 410, "reason": "Expired" }))),
        ("limit=500", page(&[request("b", 2)], "10", "")),
    ])
    .await;
    let mut event = played.api().watch(Resource::BackfillRequests);
    assert_eq!(next(&mut event).await, WatchEvent::Error(ApiError::Conflict));
    assert_eq!(names(&next(&mut event).await), ["b"]);
}

#[tokio::test]
async fn a_retry_after_header_is_respected() {
    let played = Played::new([
        ("limit=500", Reply::json(429, &json!({ "code": 429 })).with("retry-after", "1")),
        ("limit=500", page(&[], "10", "")),
    ])
    .await;
    let mut event = played.api().watch(Resource::BackfillRequests);
    let begun = std::time::Instant::now();
    let busy = WatchEvent::Error(ApiError::Throttled(Some(Duration::from_secs(1))));
    assert_eq!(next(&mut event).await, busy);
    assert_eq!(next(&mut event).await, WatchEvent::Snapshot(Vec::new()));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was asked to wait");
}

#[tokio::test]
async fn without_permission_to_watch_lists_are_repeated() {
    let forbidden = json!({ "code": 403, "message": "cannot watch" });
    let played = Played::new([
        ("limit=500", page(&[request("a", 1)], "10", "")),
        ("resourceVersion=10", Reply::json(403, &forbidden)),
        ("limit=500", page(&[request("b", 1)], "20", "")),
        ("resourceVersion=20", Reply::Lines(vec![line("ADDED", &request("c", 21))])),
    ])
    .await;
    let mut event = played.api().watch(Resource::BackfillRequests);
    assert_eq!(names(&next(&mut event).await), ["a"]);
    assert_eq!(
        next(&mut event).await,
        WatchEvent::Error(ApiError::Forbidden("cannot watch".into()))
    );
    assert_eq!(names(&next(&mut event).await), ["b"]);
    assert_eq!(names(&next(&mut event).await), ["c"]);
}

#[tokio::test]
async fn an_object_that_cannot_be_parsed_does_not_affect_others() {
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
    let mut event = played.api().watch(Resource::BackfillRequests);
    assert_eq!(names(&next(&mut event).await), ["a", "b"]);
    assert!(
        matches!(next(&mut event).await, WatchEvent::Deleted(object_name, ..) if *object_name.name == *"odd")
    );
    assert_eq!(names(&next(&mut event).await), ["c"]);
}

#[tokio::test]
async fn a_missing_kind_is_listed_when_its_crd_is_created() {
    let crd = json!({ "metadata": { "name": "backfillrequests.streaming.sneaksanddata.com" } });
    let played = Played::new([
        ("limit=500", Reply::json(404, &json!({ "code": 404 }))),
        ("customresourcedefinitions?watch=true", Reply::Lines(vec![line("ADDED", &crd)])),
        ("limit=500", page(&[request("a", 1)], "10", "")),
    ])
    .await;
    let mut event = played.api().watch(Resource::BackfillRequests);
    assert_eq!(next(&mut event).await, WatchEvent::Error(ApiError::NotFound));
    assert_eq!(names(&next(&mut event).await), ["a"]);
}

#[tokio::test]
async fn several_namespaces_are_merged_into_one_watch() {
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
    let api = played.api().within(&["x".into(), "y".into()]);
    let mut event = api.watch(Resource::BackfillRequests);
    let mut all = names(&next(&mut event).await);
    all.sort();
    assert_eq!(all, ["a", "b"]);
    assert!(
        matches!(next(&mut event).await, WatchEvent::Deleted(object_name, ..) if *object_name.name == *"a")
    );
    assert_eq!(names(&next(&mut event).await), ["c"]);
}

#[tokio::test]
async fn error_responses_and_lost_responses_are_distinguished() {
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
    let api = played.api();
    let object_name = NamespacedName::new("n", "a");
    let create = Request::Create(Resource::Jobs, json!({ "metadata": { "namespace": "n" } }));
    assert_eq!(api.send(create).await, Err(ApiError::AlreadyExists));
    let (resource, uid) = (Resource::Jobs, "uid".into());
    let delete =
        Request::Delete { resource, object_name: object_name.clone(), uid, foreground: true };
    assert_eq!(api.send(delete).await, Err(ApiError::Conflict));
    let patch = json!({});
    let patch = Request::Patch {
        resource: Resource::BackfillRequests,
        object_name: object_name.clone(),
        patch,
        status: false,
    };
    assert!(matches!(api.send(patch).await, Err(ApiError::Unreachable(_))));
    let failed = JobResult::Failed("BackoffLimitExceeded: it failed".into());
    let result = api.send(Request::JobResult { object_name, uid: "uid".into() }).await;
    assert_eq!(result, Ok(Response::JobResult(failed)));
    played.all_asked();
}
