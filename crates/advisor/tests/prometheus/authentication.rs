//! As whom a data source is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use advisor::model::datasource::{Authentication, Datasource};
use advisor::ports::prometheus::{Problem, Prometheus};
use kernel::secret::SecretSource;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{checked, client, outbound, request};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

const TIMEOUT: Duration = Duration::from_secs(60);

fn source(url: &str, authentication: Authentication) -> Datasource {
    Datasource { authentication, ..Datasource::at(url) }
}

#[tokio::test]
async fn each_authentication_has_its_header() {
    let server = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let api_key =
        |header: &str| Authentication::ApiKey { header: header.into(), key: "s3cret".into() };
    let basic = Authentication::Basic { username: "ada".into(), password: "s3cret".into() };
    for (authentication, header, expected) in [
        (Authentication::None, "authorization", ""),
        (basic, "authorization", "Basic YWRhOnMzY3JldA=="),
        (Authentication::Bearer { token: "s3cret".into() }, "authorization", "Bearer s3cret"),
        (api_key("Authorization"), "authorization", "Api-Key s3cret"),
        (api_key("X-Api-Key"), "x-api-key", "s3cret"),
    ] {
        let client = client(&source(&server.url, authentication));
        client.handshake(TIMEOUT).await.unwrap();
        assert_eq!(server.seen().last().unwrap().header(header), expected);
    }
}

#[tokio::test]
async fn credentials_that_are_not_accepted_fail_the_survey_and_are_not_shown() {
    let server = StandIn::new(|seen| {
        Reply::Text(401, Vec::new(), format!("unknown: {}", seen.header("authorization")))
    })
    .await;
    let bearer = Authentication::Bearer { token: "hunter2-token".into() };
    let client = client(&source(&server.url, bearer));
    let error = checked(&client, &request(json!({})), jiff::Timestamp::now()).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains(&server.url) && error.contains("401"), "{error}");
    assert!(error.contains("check the authentication"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    assert_eq!(server.seen().len(), 1, "it is not sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_a_file_is_read_again_when_it_changes() {
    let server = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "first\nof two lines\n").unwrap();
    let bearer = Authentication::Bearer { token: SecretSource::File(path.clone()) };
    let outbound = outbound();
    let client = Prometheus::new("datasource", &source(&server.url, bearer), &outbound).unwrap();
    let stop = CancellationToken::new();
    let keeping = outbound.keep_secrets(stop.clone());
    let changing = async {
        let sent = || server.seen().last().map(|seen| seen.header("authorization").to_owned());
        client.handshake(TIMEOUT).await.unwrap();
        assert_eq!(sent().unwrap(), "Bearer first");
        std::fs::write(&path, "second").unwrap();
        let begun = Instant::now();
        while sent().unwrap() != "Bearer second" {
            assert!(begun.elapsed() < Duration::from_secs(20), "it was not read again");
            tokio::time::sleep(Duration::from_millis(50)).await;
            client.handshake(TIMEOUT).await.unwrap();
        }
        stop.cancel();
    };
    tokio::join!(keeping, changing);
}

fn oauth2(url: &str) -> Authentication {
    Authentication::Oauth2 {
        token_url: format!("{url}/token"),
        client_id: "advisor".into(),
        client_secret: "hunter2".into(),
        scope: "read".into(),
    }
}

#[tokio::test]
async fn a_token_is_kept_until_it_expires_or_is_refused() {
    let (granted, valid) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(1)));
    let accepted = valid.clone();
    let server = StandIn::new(move |seen| {
        if seen.path == "/token" {
            let sent =
                ["grant_type", "client_id", "client_secret", "scope"].map(|name| &*seen.form[name]);
            assert_eq!(sent, ["client_credentials", "advisor", "hunter2", "read"]);
            let number = granted.fetch_add(1, Ordering::SeqCst) + 1;
            let token = format!("t{number}");
            return Reply::Json(
                json!({ "access_token": token, "token_type": "Bearer", "expires_in": 300 }),
            );
        }
        let expected = format!("Bearer t{}", accepted.load(Ordering::SeqCst));
        if seen.header("authorization") == expected {
            Small::of(1).reply(seen)
        } else {
            Reply::status(401)
        }
    })
    .await;
    let client = client(&source(&server.url, oauth2(&server.url)));
    let grants = || server.seen().iter().filter(|seen| seen.path == "/token").count();
    checked(&client, &request(json!({})), jiff::Timestamp::now()).await.unwrap();
    assert_eq!(grants(), 1, "one token for the whole survey");
    // The issuer restarted: the token is not known any more.
    valid.store(2, Ordering::SeqCst);
    client.handshake(TIMEOUT).await.unwrap();
    assert_eq!(grants(), 2);
    valid.store(9, Ordering::SeqCst);
    let error = client.handshake(TIMEOUT).await.unwrap_err();
    assert_eq!((error.problem, grants()), (Problem::Denied, 3));
}

#[tokio::test]
async fn a_client_that_gets_no_token_learns_what_to_check() {
    let server = StandIn::new(|_| {
        let body = json!({ "error": "invalid_client", "error_description": "hunter2 is wrong" });
        Reply::Text(401, Vec::new(), body.to_string())
    })
    .await;
    let client = client(&source(&server.url, oauth2(&server.url)));
    let error = checked(&client, &request(json!({})), jiff::Timestamp::now()).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("check client_id and client_secret"), "{error}");
    assert!(error.contains("[redacted] is wrong") && !error.contains("hunter2"), "{error}");
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let new =
        |source: Datasource| Prometheus::new("d", &source, &outbound()).err().unwrap().to_string();
    let with = |authentication| new(source("http://127.0.0.1:9090", authentication));
    let error = with(Authentication::Bearer { token: SecretSource::default() });
    assert_eq!(error, "d.authentication.token: is empty");
    let error = with(Authentication::Bearer { token: SecretSource::File("/none/such".into()) });
    assert!(error.starts_with("d.authentication.token: "), "{error}");
    let error = with(Authentication::ApiKey { header: "a b".into(), key: "k".into() });
    assert!(error.starts_with("d.authentication.header: "), "{error}");
    let error = with(Authentication::Basic { username: "a:b".into(), password: "p".into() });
    assert!(error.starts_with("d.authentication.username: "), "{error}");
    let mut source = Datasource::at("https://127.0.0.1:9090");
    source.tls.client_cert_file = Some("/none/such".into());
    assert!(new(source).starts_with("d.tls.client_key_file: "));
}
