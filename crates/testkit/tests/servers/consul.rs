//! Consul over HTTP.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::servers::outbound::Http;

/// Whether a write was made although it was only to be made at this version; 0 is a new key.
async fn put(http: &Http, key: &str, value: Value, version: u64) -> bool {
    let path = format!("/v1/kv/{key}?cas={version}");
    http.expect(Method::PUT, &path, value).await == true
}

/// The version that a key has.
async fn version(http: &Http, key: &str) -> u64 {
    let entry = http.expect(Method::GET, &format!("/v1/kv/{key}"), Value::Null).await;
    entry[0]["ModifyIndex"].as_u64().unwrap()
}

async fn raw(http: &Http, key: &str) -> Value {
    http.expect(Method::GET, &format!("/v1/kv/{key}?raw"), Value::Null).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_at_an_old_version_is_not_made() {
    let Some(shared) = testkit::consul() else { return };
    let corner = shared.prefix().await;
    let (http, key) = (&corner.http, format!("{}a/b", corner.prefix));
    assert!(put(http, &key, json!({"n": 1}), 0).await);
    assert!(!put(http, &key, json!({"n": 2}), 0).await, "it is there already");
    let first = version(http, &key).await;
    assert!(put(http, &key, json!({"n": 3}), first).await);
    assert!(!put(http, &key, json!({"n": 4}), first).await, "it has changed");
    assert_eq!(raw(http, &key).await, json!({"n": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_query_answers_when_the_key_changes() {
    let Some(shared) = testkit::consul() else { return };
    let corner = shared.prefix().await;
    let (http, key) = (&corner.http, format!("{}watched", corner.prefix));
    put(http, &key, json!(1), 0).await;
    let first = version(http, &key).await;
    let now = http.get(&format!("/v1/kv/{key}")).await.unwrap();
    let index = now.headers["x-consul-index"].to_str().unwrap();
    let path = format!("/v1/kv/{key}?index={index}&wait=9s");
    let waiting = http.expect(Method::GET, &path, Value::Null);
    let (seen, written) = tokio::join!(waiting, put(http, &key, json!(2), first));
    assert!(written && seen[0]["ModifyIndex"].as_u64().unwrap() > first, "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_refused_outside_its_prefix() {
    let Some(shared) = testkit::consul() else { return };
    let (own, other) = (shared.prefix().await, shared.prefix().await);
    let path = format!("/v1/kv/{}secret", other.prefix);
    other.http.expect(Method::PUT, &path, json!("mine")).await;
    let write = own.http.call(Method::PUT, &path, &json!("stolen")).await.unwrap();
    assert_eq!(write.status, 403);
    assert_ne!(own.http.get(&path).await.unwrap().status, 200);
    let anonymous = other.http.with_token("").get(&path).await.unwrap();
    assert_ne!(anonymous.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_there_after_a_kill() {
    let Some(shared) = testkit::consul() else { return };
    let own = shared.private().await;
    let corner = own.prefix().await;
    let (http, key) = (&corner.http, format!("{}kept", corner.prefix));
    assert!(put(http, &key, json!("seven"), 0).await);
    let before = version(http, &key).await;
    own.server.kill().await;
    http.get(&format!("/v1/kv/{key}")).await.unwrap_err();
    own.server.start().await;
    assert_eq!(raw(http, &key).await, json!("seven"));
    assert_eq!(version(http, &key).await, before);

    own.server.pause().await;
    let path = format!("/v1/kv/{key}");
    let ask = tokio::time::timeout(std::time::Duration::from_millis(300), http.get(&path)).await;
    assert!(ask.is_err(), "it answers although it stands still: {ask:?}");
    own.server.resume().await;
    assert_eq!(raw(http, &key).await, json!("seven"));
}
