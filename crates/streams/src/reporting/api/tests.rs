//! Tests reports on an in-memory store.

use std::collections::BTreeSet;

use kernel::log::EventFilter;
use serde_json::json;
use testkit::Memory;

use super::*;
use crate::reporting::report::{ClassReport, StreamReport};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn operator(cluster: &str, org: &str) -> Principal {
    Principal {
        subject: format!("operator-{cluster}"),
        org: org.into(),
        agent_of: Some(cluster.into()),
        ..Principal::default()
    }
}

fn class() -> ClassReport {
    ClassReport {
        uid: "c1".into(),
        name: "parquet".into(),
        kind: "ParquetStream".into(),
        api_version: "g/v1".into(),
        plural: "parquet-streams".into(),
        phase: "ready".into(),
        message: String::new(),
        generation: 1,
    }
}

fn stream(uid: &str, phase: &str) -> StreamReport {
    let report = json!({
        "uid": uid, "namespace": "prod", "name": format!("orders-{uid}"), "kind": "ParquetStream",
        "class": "parquet", "class_uid": "c1", "phase": phase, "message": "all is well",
        "trouble": false, "suspended": false, "paused": false, "backend": "change-capture",
        "schedule": "", "generation": 3, "created": "2026-11-16T07:00:00Z", "since": null,
        "definition": { "z": 1, "a": 2 },
    });
    serde_json::from_str(&report.to_string()).unwrap()
}

fn report(streams: Vec<StreamReport>) -> Report {
    Report { classes: vec![class()], streams, ..Report::default() }
}

fn whole(from: &str, to: &str, uids: &[&str]) -> Snapshot {
    Snapshot {
        classes: false,
        namespaces: Vec::new(),
        from: from.into(),
        to: to.into(),
        uids: uids.iter().map(|uid| (*uid).to_owned()).collect(),
    }
}

/// Decides on a report and commits, as the registry does.
async fn apply_report(
    store: &Memory,
    who: &Principal,
    report: &Report,
    now: Timestamp,
) -> Result<ReportResult> {
    let decided = decide_report(store, who, report, now).await?;
    for verdict in store.commit_all(decided.changes, now).await? {
        verdict?;
    }
    Ok(decided.reply)
}

async fn reported(store: &Memory, report: &Report) -> ReportResult {
    apply_report(store, &operator("prod", "acme"), report, NOW).await.unwrap()
}

async fn events(store: &Memory) -> Vec<String> {
    let events = store.events(0, &EventFilter::default(), 100).await.unwrap();
    events.into_iter().map(|event| format!("{} {}", event.kind, event.subject.id())).collect()
}

async fn get(store: &Memory, key: &str) -> Object {
    store.get(&[Key::parse(key).unwrap()]).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn a_report_is_written_once_however_often_it_comes() {
    let store = Memory::default();
    let first = report(vec![stream("u1", "pending"), stream("u2", "running")]);
    assert_eq!(reported(&store, &first).await.written, 3);
    assert_eq!(reported(&store, &first).await, ReportResult::default());
    let object = get(&store, "stream/u1").await;
    assert_eq!((object.phase.as_str(), object.org.as_str()), ("pending", "acme"));
    assert_eq!((object.generation, object.observed), (3, 3));
    let labels: BTreeSet<&str> = object.labels.values().map(String::as_str).collect();
    assert_eq!(labels, BTreeSet::from(["parquet", "ParquetStream", "prod"]));
    assert_eq!(object.labels["cluster"], "prod");
    let spec: serde_json::Value = object.spec.parse().unwrap();
    assert_eq!(spec["definition"], json!({ "z": 1, "a": 2 }));
    let key = Key::parse("stream/u1").unwrap();
    let class = Key::parse("stream-class/c1").unwrap();
    let edge = kernel::change::Edge::new(class, "class-of");
    assert_eq!(store.dependencies(&key).await.unwrap(), [edge]);
}

#[tokio::test]
async fn a_change_is_an_event_that_says_what_happened() {
    let store = Memory::default();
    reported(&store, &report(vec![stream("u1", "pending")])).await;
    reported(&store, &report(vec![stream("u1", "running")])).await;
    let mut suspended = stream("u1", "running");
    suspended.suspended = true;
    assert_eq!(reported(&store, &report(vec![suspended])).await.written, 1);
    let gone = Report { gone: vec!["u1".into(), "never-known".into()], ..Report::default() };
    assert_eq!(reported(&store, &gone).await.written, 1);
    assert_eq!(reported(&store, &gone).await.written, 0);
    let said = [
        "mainstay.stream-class.created c1",
        "mainstay.stream.created u1",
        "mainstay.stream.running u1",
        "mainstay.stream.updated u1",
        "mainstay.stream.deleted u1",
    ];
    assert_eq!(events(&store).await, said);
    assert_eq!(get(&store, "stream/u1").await.deleted_at, Some(NOW));
    // Its class was removed for a while, and the stream with it.
    assert_eq!(reported(&store, &report(vec![stream("u1", "running")])).await.written, 1);
    assert_eq!(get(&store, "stream/u1").await.deleted_at, None);
}

#[tokio::test]
async fn what_a_whole_report_does_not_name_is_gone_within_its_range() {
    let store = Memory::default();
    let all = ["a1", "a2", "b1", "b2"].map(|uid| stream(uid, "running"));
    reported(&store, &report(all.into())).await;
    // Another operator of this cluster watches other namespaces.
    let other = Snapshot { namespaces: vec!["elsewhere".into()], ..whole("", "", &[]) };
    let other = Report { whole: vec![other], ..Report::default() };
    assert_eq!(reported(&store, &other).await.written, 0);
    let first = Report { whole: vec![whole("", "b", &["a2"])], ..Report::default() };
    assert_eq!(reported(&store, &first).await.written, 1);
    let rest = Report { whole: vec![whole("b", "", &[])], ..Report::default() };
    assert_eq!(reported(&store, &rest).await.written, 2);
    assert!(get(&store, "stream/a2").await.deleted_at.is_none());
    assert!(get(&store, "stream-class/c1").await.deleted_at.is_none());
    let other = Report {
        whole: vec![Snapshot { classes: true, ..whole("", "", &[]) }],
        ..Report::default()
    };
    assert_eq!(reported(&store, &other).await.written, 1);
}

#[tokio::test]
async fn an_operator_speaks_of_its_own_cluster_only() {
    let store = Memory::default();
    reported(&store, &report(vec![stream("u1", "running")])).await;
    for other in [operator("test", "acme"), operator("prod", "umbrella")] {
        let lie = report(vec![stream("u1", "failed")]);
        let result = apply_report(&store, &other, &lie, NOW).await.unwrap();
        assert_eq!((result.written, result.refused), (0, vec!["c1".to_owned(), "u1".to_owned()]));
        let gone = Report {
            gone: vec!["u1".into()],
            whole: vec![whole("", "", &[])],
            ..Report::default()
        };
        assert_eq!(apply_report(&store, &other, &gone, NOW).await.unwrap().written, 0);
    }
    assert_eq!(get(&store, "stream/u1").await.phase, "running");
    let nobody = Principal { org: "acme".into(), ..Principal::default() };
    assert!(apply_report(&store, &nobody, &Report::default(), NOW).await.is_err());
    let odd = report(vec![stream("../x", "running")]);
    assert!(apply_report(&store, &operator("prod", "acme"), &odd, NOW).await.is_err());
}

/// Serves the domain, and returns its URL and the token of an operator.
async fn served(dir: &std::path::Path) -> (String, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let ambient = kernel::Ambient::system();
    let unwatched: kernel::outbound::Observe = std::sync::Arc::new(|_| {});
    let outbound =
        kernel::outbound::Outbound::new(Default::default(), ambient.clone(), unwatched).unwrap();
    let identity = kernel::identity::Identity::start(
        Default::default(),
        dir,
        &url,
        ambient.clone(),
        &outbound,
    )
    .unwrap();
    let signer = identity.builtin().unwrap().signer();
    let hour = std::time::Duration::from_secs(3600);
    let kind = kernel::identity::builtin::Kind::Access;
    let token = signer.issue(&operator("c1", "acme"), "tests", hour, kind).unwrap();
    let app = App::new(kernel::AppState {
        store: std::sync::Arc::new(Memory::default()),
        blobs: kernel::blob::Blobs::new(&[7; 32], ambient.clone()),
        metrics: Default::default(),
        url: url.clone(),
        ambient,
        identity,
        outbound,
    });
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let routes = StreamsDomain.start(&app, &tasks, &stop).await.unwrap().routes;
    tasks.spawn(kernel::http::serve(app, routes, listener, Default::default(), stop));
    (url, token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_report_of_another_operator_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (url, token) = served(dir.path()).await;
    let all = report((0..4000).map(|i| stream(&format!("s{i}"), "running")).collect());
    let body = serde_json::to_vec(&all).unwrap();
    assert!(body.len() > 1 << 20);
    kernel::outbound::install_tls();
    let put = reqwest::Client::new()
        .put(format!("{url}{}", crate::reporting::report::PATH))
        .bearer_auth(token)
        .header("content-type", "application/json")
        .body(body);
    let response = put.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.text().await.unwrap(), r#"{"written":4001,"refused":[]}"#);
}
