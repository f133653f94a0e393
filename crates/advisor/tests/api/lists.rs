//! Lists of many experiments: what is shown, and that it is written as it is read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::http::Request;
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::stores;

use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

async fn server(containers: usize) -> (Server, Small, StandIn, stores::Fresh) {
    let small = Small::of(containers);
    let answering = small.clone();
    let source = StandIn::new(move |seen| answering.reply(seen)).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("p", &source.url)])).await;
    (server, small, source, fresh)
}

/// The largest part of an answer, and the whole.
async fn parts(server: &Server, path: &str) -> (usize, Value) {
    let request = Request::builder().uri(path).header("authorization", server.authorization());
    let body = server.response(request.body(Body::empty()).unwrap()).await.into_body();
    let mut parts = body.into_data_stream();
    let (mut largest, mut whole) = (0, Vec::new());
    while let Some(part) = parts.next().await {
        let part = part.unwrap();
        largest = largest.max(part.len());
        whole.extend_from_slice(&part);
    }
    (largest, serde_json::from_slice(&whole).unwrap())
}

fn names(list: &Value) -> BTreeSet<String> {
    let names = list.as_array().unwrap().iter().map(|item| item["experiment_name"].as_str());
    names.map(|name| name.unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_whole_and_written_in_small_parts() {
    let (server, small, _source, _fresh) = server(1200).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let expected: BTreeSet<String> =
        small.containers.iter().map(|name| small.experiment(name)).collect();
    let all_at = [
        "/listRecommendations".to_owned(),
        "/listRecommendations?latest=false".to_owned(),
        format!("/listRecommendations?job_id={id}"),
        "/listRecommendations?job_id=unknown".to_owned(),
        "/listExperiments".to_owned(),
        "/listExperiments?recommendations=true".to_owned(),
    ];
    for path in all_at {
        let (largest, list) = parts(&server, &path).await;
        assert_eq!(list.as_array().unwrap().len(), 1200, "{path}");
        assert_eq!(names(&list), expected, "{path}");
        let total = list.to_string().len();
        assert!(largest * 4 < total, "{path}: {largest} of {total} bytes at once");
    }
    let (_, unknown) = parts(&server, "/listRecommendations?job_id=unknown").await;
    let container = &unknown[0]["kubernetes_objects"][0]["containers"][0];
    assert_eq!(container["recommendations"]["data"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_can_be_of_one_job_or_of_what_a_body_says() {
    let (server, small, _source, _fresh) = server(6).await;
    let of = |name: &str| json!({ "include": { "containers": [name] } });
    let first = server.create(json!({ "datasource": "p", "filter": of("c1") })).await.unwrap();
    let second = server.create(json!({ "datasource": "p", "filter": of("c2") })).await.unwrap();
    server.completed(&first).await;
    server.completed(&second).await;
    let of_first = server.get(&format!("/listRecommendations?job_id={first}")).await.body;
    assert_eq!(names(&of_first), [small.experiment("c1")].into());
    let none = format!("/listRecommendations?job_id={first}&experiment_name=other");
    assert_eq!(server.get(&none).await.body, json!([]));
    for (filter, expected) in [
        (json!({}), 2),
        (json!({ "cluster_name": "other" }), 0),
        (json!({ "kubernetes_objects": [{ "namespace": "shop" }] }), 2),
        (json!({ "kubernetes_objects": [{ "containers": [{ "container_name": "c2" }] }] }), 1),
    ] {
        let listed = server.call("GET", "/listExperiments", &filter.to_string()).await;
        assert_eq!(listed.body.as_array().unwrap().len(), expected, "{filter}");
    }
    let wrong = server.call("GET", "/listExperiments", r#"{"namespace":"shop"}"#).await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.text.contains("namespace"), "{}", wrong.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recommendation_that_takes_too_long_is_answered_later() {
    let small = Small::of(1);
    let (hangs, answering) = (Arc::new(AtomicBool::new(false)), small.clone());
    let is_hanging = hangs.clone();
    let source = StandIn::new(move |seen| {
        if is_hanging.load(Ordering::SeqCst) { Reply::status(503) } else { answering.reply(seen) }
    })
    .await;
    let fresh = stores::sqlite().await.unwrap();
    let mut config = config(&[("p", &source.url)]);
    config.recommend_timeout_s = 1;
    let server = Server::start(&fresh, &config).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    hangs.store(true, Ordering::SeqCst);
    let name = small.experiment("c0").replace('|', "%7C");
    let path = format!("/generateRecommendations?experiment_name={name}");
    let late = server.call("POST", &path, "").await;
    assert_eq!(late.status, 503, "{}", late.text);
    assert!(late.text.contains("advisor.recommend_timeout_s"), "{}", late.text);
    hangs.store(false, Ordering::SeqCst);
    let name = small.experiment("c0");
    until("it is answered", async || server.experiments().await[&name].status.answered() == 1)
        .await;
}
