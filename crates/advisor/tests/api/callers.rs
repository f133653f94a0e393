//! Who may do what: organisations do not see each other's jobs, and an open API is open on the paths
//! of the existing service alone.

use advisor::config::{Config, OpenAs};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use testkit::stores::{self, Fresh};

use crate::support::server::{Answer, Server, config};
use crate::support::small::Small;
use crate::support::stand_in::StandIn;

async fn started(open_as: Option<OpenAs>) -> (Fresh, Server, StandIn) {
    let small = Small::of(3);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let fresh = stores::memory().await.unwrap();
    let config = Config { open_as, ..config(&[("p", &source.url)]) };
    let server = Server::start(&fresh, &config).await;
    (fresh, server, source)
}

async fn without_a_token(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    let request = Request::builder().method(method).uri(path);
    server.send(request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_api_is_open_on_the_paths_of_the_existing_service_alone() {
    let everybody = OpenAs { subject: "all".into(), org: "acme".into(), roles: Vec::new() };
    let (_fresh, server, _source) = started(Some(everybody)).await;
    let job = without_a_token(&server, "POST", "/bulk", &json!({ "datasource": "p" })).await;
    assert_eq!(job.status, 200, "{}", job.text);
    let id = job.body["job_id"].as_str().unwrap();
    assert_eq!(server.completed(id).await.owner, "all");
    let shown = without_a_token(&server, "GET", &format!("/bulk?job_id={id}"), &json!({})).await;
    assert_eq!(shown.body["summary"]["processed_experiments"], 3, "{}", shown.text);
    // Of the same organisation, with a token.
    assert_eq!(server.get(&format!("/bulk?job_id={id}")).await.status, 200);
    for (method, path) in [
        ("GET", "/api/v1/advisor/jobs".to_owned()),
        ("GET", format!("/api/v1/advisor/jobs/{id}")),
        ("POST", format!("/api/v1/advisor/jobs/{id}/cancel")),
        ("DELETE", format!("/api/v1/advisor/jobs/{id}")),
        ("PUT", "/api/v1/advisor/datasources/mine".to_owned()),
        ("DELETE", "/api/v1/advisor/datasources/mine".to_owned()),
        ("GET", "/api/v1/advisor/webhook-secret".to_owned()),
        ("GET", "/api/v1/objects".to_owned()),
    ] {
        let refused = without_a_token(&server, method, &path, &json!({})).await;
        assert_eq!(refused.status, 401, "{method} {path}: {}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_nothing_is_answered_unless_the_api_is_opened() {
    let (_fresh, server, _source) = started(None).await;
    for (method, path) in
        [("POST", "/bulk"), ("GET", "/listRecommendations"), ("GET", "/datasources")]
    {
        let refused = without_a_token(&server, method, path, &json!({})).await;
        assert_eq!(refused.status, 401, "{method} {path}: {}", refused.text);
    }
    assert!(server.objects("bulk-job").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_seen_and_steered_by_its_own_organisation_alone() {
    let (_fresh, server, _source) = started(None).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let other = server.authorization_of("globex");
    for (method, path, status) in [
        ("GET", format!("/bulk?job_id={id}"), 404),
        ("GET", format!("/bulk?job_id={id}&include=experiments"), 404),
        ("GET", format!("/api/v1/advisor/jobs/{id}"), 404),
        ("POST", format!("/api/v1/advisor/jobs/{id}/cancel"), 404),
        ("DELETE", format!("/api/v1/advisor/jobs/{id}"), 404),
    ] {
        let answer = server.call_as(&other, method, &path, "").await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
    }
    let jobs = server.call_as(&other, "GET", "/api/v1/advisor/jobs", "").await;
    assert_eq!(jobs.body["jobs"], json!([]), "{}", jobs.text);
    for path in [format!("/listRecommendations?job_id={id}"), "/listExperiments".to_owned()] {
        let answer = server.call_as(&other, "GET", &path, "").await;
        assert_eq!(answer.body, json!([]), "{path}");
    }
    assert!(!server.job(&id).await.spec.deleted);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_without_an_organisation_share_no_names() {
    let (_fresh, server, _source) = started(None).await;
    let body = json!({ "datasource": "p", "requestId": "nightly" }).to_string();
    let mut ids = Vec::new();
    for subject in ["alice", "bob"] {
        let created = server.call_as(&server.person(subject), "POST", "/bulk", &body).await;
        assert_eq!(created.status, 200, "{}", created.text);
        ids.push(created.body["job_id"].as_str().unwrap().to_owned());
        server.completed(&ids[ids.len() - 1]).await;
    }
    assert_ne!(ids[0], ids[1]);
    let owners = server.objects("experiment").await;
    let count = |subject: &str| owners.iter().filter(|object| object.owner == subject).count();
    assert_eq!((count("alice"), count("bob")), (3, 3));
    let path = format!("/bulk?job_id={}", ids[0]);
    assert_eq!(server.call_as(&server.person("bob"), "GET", &path, "").await.status, 404);
}
