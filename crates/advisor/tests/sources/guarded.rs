//! Users' data sources lead to public addresses only, when they are made and at every connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use advisor::model::job::JobPhase;
use advisor::model::user_source::{DATASOURCE, UserSource};
use advisor::ports::prometheus::{Problem, Prometheus};
use futures::FutureExt as _;
use kernel::Ambient;
use kernel::outbound::{Config, Lookup, Outbound};
use serde_json::json;
use testkit::stores;

use super::{made, message, open_config, put};
use crate::support::server::Server;
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_private_address_is_refused_and_never_called() {
    let source = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &advisor::Config::default()).await;
    let port = source.url.rsplit(':').next().unwrap();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
    ] {
        let answer = put(&server, "own", &json!({ "url": format!("http://{host}:{port}") })).await;
        assert_eq!(answer.status, 400, "{host}: {}", answer.text);
        let message = message(&answer);
        assert!(message.starts_with("url: ") && message.contains("only public"), "{message}");
    }
    let oauth2 = json!({ "type": "oauth2", "token_url": source.url, "client_id": "c",
        "client_secret": "hunter2" });
    let settings = json!({ "url": "http://93.184.216.34", "authentication": oauth2 });
    let answer = put(&server, "own", &settings).await;
    assert!(message(&answer).starts_with("authentication.token_url: "), "{}", answer.text);
    assert_eq!(source.seen().len(), 0);
    assert!(server.objects(DATASOURCE).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_allowed_is_not_read_any_more_when_it_is_not() {
    let source = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &open_config()).await;
    for name in ["own", "prometheus-1"] {
        made(&server, name, &source.url).await;
    }
    drop(server);
    let server = Server::start(&fresh, &advisor::Config::default()).await;
    let before = source.seen().len();
    let error = server.create(json!({ "datasource": "own" })).await.unwrap_err().to_string();
    assert!(error.contains("a loopback address"), "{error}");
    // The default one is not asked before the job.
    let job = server.ended(&server.create(json!({})).await.unwrap()).await;
    assert_eq!(job.phase, JobPhase::Failed);
    let [notice] = &job.status.notices[..] else { panic!("{:?}", job.status) };
    assert!(notice.message.contains("a loopback address"), "{notice:?}");
    assert_eq!(source.seen().len(), before);
}

fn source(value: serde_json::Value) -> UserSource {
    UserSource::try_from(value).unwrap()
}

#[tokio::test]
async fn a_name_that_turns_to_a_private_address_is_refused_at_the_connection() {
    let server = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let port = server.url.rsplit(':').next().unwrap();
    let inward = Arc::new(AtomicBool::new(false));
    let turned = inward.clone();
    let lookup: Lookup = Arc::new(move |_| {
        let ip = if turned.load(Ordering::SeqCst) { [127, 0, 0, 1] } else { [93, 184, 216, 34] };
        std::future::ready(Ok(vec![IpAddr::from(ip)])).boxed()
    });
    let config = Config { connect_timeout_ms: 200, ..Config::default() };
    let outbound =
        Outbound::with_lookup(config, Ambient::system(), Arc::new(|_| ()), lookup).unwrap();
    let url = format!("http://rebound.example:{port}");
    outbound.user_url("url", &url).await.unwrap();
    let with_ca = {
        let dir = tempfile::tempdir().unwrap();
        let authority = servers::pki::Authority::create(dir.path(), "own").unwrap();
        let ca = std::fs::read_to_string(authority.certificate()).unwrap();
        json!({ "name": "own", "url": url, "tls": { "ca": ca } })
    };
    inward.store(true, Ordering::SeqCst);
    for settings in [json!({ "name": "own", "url": url }), with_ca] {
        let client = Prometheus::of_user(&source(settings), &outbound, true).await.unwrap();
        let error = client.handshake(TIMEOUT).await.unwrap_err();
        assert_eq!(error.problem, Problem::Unreachable, "{error}");
        assert!(error.why.contains("a loopback address"), "{error}");
    }
    // The issuer of tokens as well.
    let oauth2 = json!({ "type": "oauth2", "token_url": url, "client_id": "c",
        "client_secret": "hunter2-secret" });
    let settings =
        json!({ "name": "own", "url": "http://93.184.216.34", "authentication": oauth2 });
    let client = Prometheus::of_user(&source(settings), &outbound, true).await.unwrap();
    let error = client.handshake(TIMEOUT).await.unwrap_err();
    assert!(error.why.contains("a loopback address"), "{error}");
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn what_another_system_answers_to_a_users_address_is_not_shown() {
    let web = StandIn::new(|seen| match seen.path.as_str() {
        "/token" => Reply::Text(403, Vec::new(), "inner words".into()),
        _ if seen.header("authorization").is_empty() => {
            Reply::Text(403, Vec::new(), "inner words".into())
        }
        _ => Reply::error(400, "bad_data", "words of a Prometheus"),
    })
    .await;
    let config = Config { allow_targets: vec!["127.0.0.1".into()], ..Config::default() };
    let outbound = Outbound::new(config, Ambient::system(), Arc::new(|_| ())).unwrap();
    let asked = async |authentication: serde_json::Value| {
        let settings = json!({ "name": "o", "url": web.url, "authentication": authentication });
        let client = Prometheus::of_user(&source(settings), &outbound, true).await.unwrap();
        client.handshake(TIMEOUT).await.unwrap_err().why
    };
    let why = asked(json!({ "type": "none" })).await;
    assert!(why.contains("403") && !why.contains("inner words"), "{why}");
    let why = asked(json!({ "type": "oauth2", "token_url": format!("{}/token", web.url),
        "client_id": "c", "client_secret": "hunter2" }))
    .await;
    assert!(why.contains("check client_id") && !why.contains("inner words"), "{why}");
    let why = asked(json!({ "type": "bearer", "token": "t" })).await;
    assert!(why.contains("words of a Prometheus"), "{why}");
}
