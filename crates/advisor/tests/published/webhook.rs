//! Webhooks of jobs: signed, tried again, safe, and never in the way of a job.

use advisor::config::Config;
use advisor::model::notification::Delivery;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::stores::{self, Fresh};

use super::receiver::{Called, Receiver};
use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::StandIn;

testkit::on_every_store!(
    a_call_is_signed_and_tried_until_it_is_taken,
    a_server_that_is_killed_delivers_afterwards,
    a_job_that_is_deleted_stops_its_webhook,
);

async fn cluster(containers: usize) -> StandIn {
    let small = Small::of(containers);
    StandIn::new(move |seen| small.reply(seen)).await
}

/// Receivers of tests are on this machine.
fn local(source: &StandIn) -> Config {
    Config { private_addresses: true, ..config(&[("p", &source.url)]) }
}

async fn create(server: &Server, receiver: &Receiver) -> String {
    let body = json!({ "datasource": "p", "webhook": { "url": receiver.url } });
    let id = server.create(body).await.unwrap();
    server.completed(&id).await;
    id
}

async fn delivery(server: &Server, id: &str) -> Option<Delivery> {
    server.job(id).await.status.webhook.map(|webhook| webhook.delivery)
}

async fn until_delivered(server: &Server, id: &str) {
    until("the delivery", async || delivery(server, id).await == Some(Delivery::Completed)).await;
}

/// The state as callers see it.
async fn shown(server: &Server, id: &str) -> Value {
    server.get(&format!("/bulk?job_id={id}&include=webhook")).await.body["webhook"].clone()
}

/// As the documents tell receivers to verify.
fn is_signed(call: &Called, secret: &str) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let head = format!("{}.{}.", call.header("webhook-id"), call.header("webhook-timestamp"));
    let signed = [head.as_bytes(), &call.body].concat();
    let tag = hmac_sha256(&key, &signed);
    call.header("webhook-signature") == format!("v1,{}", STANDARD.encode(tag))
}

/// RFC 2104, so that the product's own function is not its judge.
fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    use sha2::{Digest as _, Sha256};
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let padded = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

async fn a_call_is_signed_and_tried_until_it_is_taken(fresh: &Fresh) {
    let source = cluster(3).await;
    let receiver = Receiver::start(|number| if number < 2 { 500 } else { 204 }).await;
    let server = Server::start(fresh, &local(&source)).await;
    let secret = server.get("/api/v1/advisor/webhook-secret").await.body;
    let secret = secret["secret"].as_str().unwrap();
    let id = create(&server, &receiver).await;
    until("a failure is shown", async || {
        let shown = shown(&server, &id).await;
        shown["status"] == "IN_PROGRESS" && shown["notifications"]["type"] == "WARNING"
    })
    .await;
    until_delivered(&server, &id).await;
    assert_eq!(shown(&server, &id).await, json!({ "status": "COMPLETED" }));
    let calls = receiver.calls();
    assert_eq!(calls.len(), 3);
    for call in &calls {
        assert_eq!(call.header("webhook-id"), id);
        assert!(is_signed(call, secret), "{call:?}");
        let body = call.json();
        assert_eq!(body[0]["summary"]["jobID"], id);
        assert_eq!(body[0]["summary"]["status"], "COMPLETED");
        assert_eq!(body[0]["experiments"].as_object().unwrap().len(), 3);
    }
    let changed = Called { body: "[]".into(), ..calls[0].clone() };
    assert!(!is_signed(&changed, secret));
    // The job is still there, and waits for nothing.
    let job = server.completed(&id).await;
    assert_eq!(job.status.webhook.unwrap().tries, 3);
}

async fn a_server_that_is_killed_delivers_afterwards(fresh: &Fresh) {
    let source = cluster(2).await;
    let receiver = Receiver::hanging_once().await;
    let settings = local(&source);
    let server = Server::start(fresh, &settings).await;
    let id = create(&server, &receiver).await;
    until("it is called", async || !receiver.calls().is_empty()).await;
    assert_eq!(shown(&server, &id).await, json!({ "status": "IN_PROGRESS" }));
    drop(server);
    let server = Server::start(fresh, &settings).await;
    // Once more, under the same id: whether the first one was taken is not known.
    until_delivered(&server, &id).await;
    let ids: Vec<String> =
        receiver.calls().iter().map(|call| call.header("webhook-id").to_owned()).collect();
    assert_eq!(ids, [id.clone(), id]);
}

async fn a_job_that_is_deleted_stops_its_webhook(fresh: &Fresh) {
    let source = cluster(2).await;
    let hanging = Receiver::hanging().await;
    let server = Server::start(fresh, &local(&source)).await;
    let id = create(&server, &hanging).await;
    until("it is called", async || !hanging.calls().is_empty()).await;
    server.delete(&id).await;
    until("it is gone", async || server.objects("bulk-job").await.is_empty()).await;
    assert_eq!(server.objects("bulk-shard").await.len(), 0);
    assert_eq!(hanging.calls().len(), 1);
}

async fn one_server(settings: &Config) -> (Fresh, Server) {
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, settings).await;
    (fresh, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_that_hang_hold_up_neither_jobs_nor_for_long_other_webhooks() {
    let source = cluster(2).await;
    let (hanging, receiver) = (Receiver::hanging().await, Receiver::start(|_| 200).await);
    let (_fresh, server) = one_server(&local(&source)).await;
    let mut waiting = Vec::new();
    for _ in 0..6 {
        waiting.push(create(&server, &hanging).await);
    }
    let id = create(&server, &receiver).await;
    until_delivered(&server, &id).await;
    for id in waiting {
        assert_eq!(delivery(&server, &id).await, Some(Delivery::InProgress));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed_and_a_receiver_that_is_gone_is_not_called_again() {
    let source = cluster(1).await;
    let target = Receiver::start(|_| 200).await;
    let redirecting = Receiver::redirecting(&target.url).await;
    let gone = Receiver::start(|_| 410).await;
    let (_fresh, server) = one_server(&local(&source)).await;
    let redirected = create(&server, &redirecting).await;
    let ended = create(&server, &gone).await;
    until("it is given up", async || delivery(&server, &ended).await == Some(Delivery::Failed))
        .await;
    let shown_ended = shown(&server, &ended).await;
    assert_eq!(shown_ended["status"], "FAILED");
    assert_eq!(shown_ended["notifications"]["type"], "ERROR");
    assert!(shown_ended["notifications"]["message"].as_str().unwrap().contains("410 Gone"));
    until("it is tried twice", async || redirecting.calls().len() > 1).await;
    let message = shown(&server, &redirected).await["notifications"]["message"].clone();
    assert!(message.as_str().unwrap().contains("redirects are not followed"), "{message}");
    assert_eq!((gone.calls().len(), target.calls().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_when_they_are_given_and_when_they_are_called() {
    let source = cluster(1).await;
    let receiver = Receiver::start(|_| 500).await;
    let settings = config(&[("p", &source.url)]);
    let (fresh, server) = one_server(&settings).await;
    for (url, why) in [
        (receiver.url.as_str(), "leads to 127.0.0.1, a loopback address"),
        ("http://169.254.169.254/latest", "a link-local address"),
        ("http://[::1]/", "a loopback address"),
        ("ftp://example.com/", "must begin with https:// or http://"),
        ("https://u:p@example.com/", "must not hold a user"),
        ("nonsense", "is not a URL"),
    ] {
        let body = json!({ "datasource": "p", "webhook": { "url": url } });
        let answer = server.call("POST", "/bulk", &body.to_string()).await;
        assert_eq!(answer.status, 400, "{url}");
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.starts_with("webhook.url: ") && message.contains(why), "{message}");
    }
    assert_eq!(server.objects("bulk-job").await.len(), 0);
    drop(server);
    // One that was allowed when it was given.
    let server = Server::start(&fresh, &local(&source)).await;
    let body = json!({ "datasource": "p", "webhook": { "url": receiver.url } });
    for wrong in ["ftp://127.0.0.1/", "http://u@127.0.0.1/", "http:/", "nonsense"] {
        let body = json!({ "datasource": "p", "webhook": { "url": wrong } });
        let error = server.create(body).await.unwrap_err().to_string();
        assert!(error.starts_with("webhook.url: must be http(s)://HOST"), "{error}");
    }
    let id = server.create(body).await.unwrap();
    drop(server);
    let server = Server::start(&fresh, &settings).await;
    server.completed(&id).await;
    until("it is refused", async || {
        let shown = shown(&server, &id).await["notifications"]["message"].clone();
        shown.as_str().is_some_and(|why| why.contains("leads to 127.0.0.1"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_job_is_announced_without_its_experiments() {
    let source = cluster(3).await;
    let receiver = Receiver::start(|_| 200).await;
    let settings = Config { webhook_experiments_max: 2, ..local(&source) };
    let (_fresh, server) = one_server(&settings).await;
    let id = create(&server, &receiver).await;
    until_delivered(&server, &id).await;
    let body = receiver.calls()[0].json();
    let [job] = &body.as_array().unwrap()[..] else { panic!("{body}") };
    assert_eq!(job["summary"]["total_experiments"], 3);
    let members: Vec<&String> = job.as_object().unwrap().keys().collect();
    assert_eq!(members, ["summary", "webhook"]);
    let notice = &job["webhook"]["notifications"];
    let message = notice["message"].as_str().unwrap();
    assert!(message.contains("webhook_experiments_max") && message.contains(&id), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_an_organisations_own_and_not_shown_where_the_api_is_open() {
    use advisor::config::OpenAs;
    use axum::body::Body;
    use axum::http::Request;
    let source = cluster(1).await;
    let open_as = OpenAs { subject: "all".into(), org: "acme".into(), roles: vec!["user".into()] };
    let settings = Config { open_as: Some(open_as), ..local(&source) };
    let (_fresh, server) = one_server(&settings).await;
    let path = "/api/v1/advisor/webhook-secret";
    let anonymous = Request::builder().uri(path).body(Body::empty()).unwrap();
    let refused = server.send(anonymous).await;
    assert_eq!(refused.status, 401, "{}", refused.text);
    assert!(!refused.text.contains("whsec_"));
    let secret = server.get(path).await.body["secret"].clone();
    assert!(secret.as_str().unwrap().starts_with("whsec_"));
    let of = |org: &str| advisor::ports::webhook::secret(&server.app, org);
    assert_eq!(secret, of("acme").expose().as_str());
    assert!(of("acme") != of("globex"));
}
