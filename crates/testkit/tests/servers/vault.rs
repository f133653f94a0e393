//! Vault over HTTP.

use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn each_write_is_a_version_and_old_ones_can_be_read() {
    let Some(shared) = testkit::vault() else { return };
    let mount = shared.mount().await;
    let http = mount.login().await;
    let path = format!("/v1/{}/data/app", mount.name);
    for (seen, secret) in ["one", "two"].into_iter().enumerate() {
        let write = json!({"options": {"cas": seen}, "data": {"secret": secret}});
        let written = http.expect(Method::POST, &path, write).await;
        assert_eq!(written["data"]["version"], seen + 1);
    }
    let late = json!({"options": {"cas": 1}, "data": {"secret": "three"}});
    assert_eq!(http.call(Method::POST, &path, &late).await.unwrap().status, 400);
    let read = http.expect(Method::GET, &path, Value::Null).await;
    assert_eq!(read["data"]["data"]["secret"], "two");
    let first = http.expect(Method::GET, &format!("{path}?version=1"), Value::Null).await;
    assert_eq!(first["data"]["data"]["secret"], "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_refused_outside_its_mount() {
    let Some(shared) = testkit::vault() else { return };
    let (own, other) = (shared.mount().await, shared.mount().await);
    let http = own.login().await;
    for path in [format!("/v1/{}/data/app", other.name), "/v1/sys/mounts".into()] {
        assert_eq!(http.get(&path).await.unwrap().status, 403, "{path}");
    }
    let wrong = json!({"role_id": own.role_id, "secret_id": other.secret_id});
    let login = http.call(Method::POST, "/v1/auth/approle/login", &wrong).await.unwrap();
    assert_eq!(login.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_there_after_a_kill() {
    let Some(shared) = testkit::vault() else { return };
    let own = shared.private().await;
    let mount = own.mount().await;
    let http = mount.login().await;
    let path = format!("/v1/{}/data/kept", mount.name);
    http.expect(Method::POST, &path, json!({"data": {"n": 7}})).await;
    own.server.kill().await;
    http.get(&path).await.unwrap_err();
    own.server.start().await;
    for http in [http, mount.login().await] {
        let kept = http.expect(Method::GET, &path, Value::Null).await;
        assert_eq!(kept["data"]["data"]["n"], 7);
    }

    own.server.pause().await;
    let admin = own.admin();
    let ask = tokio::time::timeout(std::time::Duration::from_millis(300), admin.get(&path)).await;
    assert!(ask.is_err(), "it answers although it stands still");
    own.server.resume().await;
    assert_eq!(admin.get(&path).await.unwrap().status, 200);
}
