//! Secrets of a real Vault: sign-in by token and AppRole, KV of both versions, renewal, outages.

use std::time::{Duration, Instant};

use kernel::secret::vault::{Auth, Config};
use kernel::secret::{SecretSource, SecretValue};
use kernel::{Class, Error};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::servers::outbound::Http;
use testkit::servers::unique;
use testkit::vault::{Mount, Vault};

use crate::{Kept, LIMIT, assert_nothing_leaked, becomes, eventually};

fn config(vault: &Vault) -> Config {
    Config { address: vault.url().into(), refresh_s: 1, ..Config::default() }
}

fn by_token(vault: &Vault, token: &str) -> Config {
    Config { token: token.into(), ..config(vault) }
}

async fn put(admin: &Http, mount: &Mount, text: &str) {
    let body = json!({"data": {"token": text, "number": 5432}});
    admin.expect(Method::POST, &format!("/v1/{}/data/app", mount.name), body).await;
}

fn source(mount: &Mount, field: &str) -> SecretSource {
    let text = format!("{}/data/app#{field}", mount.name);
    SecretSource::Vault(text.try_into().unwrap())
}

fn secret(kept: &Kept, source: &SecretSource) -> SecretValue {
    kept.outbound.secret("a.token", source).unwrap()
}

fn health(kept: &Kept) -> Result<String, String> {
    kept.outbound.secret_checks().remove(0).result
}

/// A token with this policy, and more of its properties.
async fn token(admin: &Http, mount: &Mount, more: Value) -> String {
    let mut body = json!({"policies": [mount.name], "no_parent": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = admin.expect(Method::POST, "/v1/auth/token/create", body).await;
    made["auth"]["client_token"].as_str().unwrap().to_owned()
}

/// Changes the secret again and again for so long; each value arrives.
async fn stays_fresh(admin: &Http, mount: &Mount, secret: &SecretValue, long: Duration) {
    let begun = Instant::now();
    let mut n = 0;
    while begun.elapsed() < long {
        n += 1;
        let text = format!("hunter2-{n}");
        put(admin, mount, &text).await;
        becomes(secret, &text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_at_half_its_life_and_replaced_with_its_file() {
    let Some(vault) = testkit::vault() else { return };
    let (mount, admin) = (vault.mount().await, vault.admin());
    put(&admin, &mount, "hunter2-first").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vault-token");
    let short = token(&admin, &mount, json!({"ttl": "3s", "renewable": true})).await;
    std::fs::write(&file, &short).unwrap();
    let kept = Kept::new();
    let sign_in = Config { token: SecretSource::File(file.clone()), ..config(&vault) };
    kept.outbound.use_vault(&sign_in).unwrap();
    let (one, number) =
        (secret(&kept, &source(&mount, "token")), secret(&kept, &source(&mount, "number")));
    assert!(matches!(one.current().unwrap_err(), Error::Unavailable { .. }), "not read yet");
    kept.outbound.read_secrets(LIMIT).await;
    assert_eq!(one.current().unwrap().expose(), "hunter2-first");
    assert_eq!(number.current().unwrap().expose(), "5432");

    let kept = kept.start();
    // Three times the life of the token.
    stays_fresh(&admin, &mount, &one, Duration::from_secs(9)).await;

    let next = token(&admin, &mount, json!({"ttl": "1h"})).await;
    std::fs::write(&file, &next).unwrap();
    let revoke = json!({"token": short});
    admin.expect(Method::POST, "/v1/auth/token/revoke", revoke).await;
    put(&admin, &mount, "hunter2-last").await;
    becomes(&one, "hunter2-last").await;
    drop(kept);
    assert_nothing_leaked();
    for token in [short, next] {
        assert!(!crate::log().contains(&token), "the log has a token");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_role_signs_in_again_when_its_token_ends_or_is_revoked() {
    let Some(vault) = testkit::vault() else { return };
    let (mount, admin) = (vault.mount().await, vault.admin());
    put(&admin, &mount, "hunter2-first").await;
    // A sign-in method of the test's own, with tokens that cannot be renewed for long.
    let method = unique();
    let at = format!("/v1/auth/{method}/role/app");
    admin.expect(Method::POST, &format!("/v1/sys/auth/{method}"), json!({"type": "approle"})).await;
    let role = json!({"token_policies": [mount.name], "token_ttl": "2s", "token_max_ttl": "4s"});
    admin.expect(Method::POST, &at, role).await;
    let role_id = admin.expect(Method::GET, &format!("{at}/role-id"), Value::Null).await;
    let secret_id = admin.expect(Method::POST, &format!("{at}/secret-id"), json!({})).await;
    let role_id = role_id["data"]["role_id"].as_str().unwrap();
    let secret_id = secret_id["data"]["secret_id"].as_str().unwrap();

    let sign_in = Config {
        auth: Auth::AppRole,
        mount: method.clone(),
        role_id: role_id.into(),
        secret_id: secret_id.into(),
        ..config(&vault)
    };
    let kept = Kept::new();
    kept.outbound.use_vault(&sign_in).unwrap();
    let one = secret(&kept, &source(&mount, "token"));
    let kept = kept.start();
    becomes(&one, "hunter2-first").await;
    // Past the longest life of a token.
    stays_fresh(&admin, &mount, &one, Duration::from_secs(9)).await;

    let role = json!({"token_policies": [mount.name], "token_ttl": "1h", "token_max_ttl": "2h"});
    admin.expect(Method::POST, &at, role).await;
    stays_fresh(&admin, &mount, &one, Duration::from_secs(4)).await;
    let revoke = format!("/v1/sys/leases/revoke-prefix/auth/{method}/login");
    admin.expect(Method::PUT, &revoke, json!({})).await;
    put(&admin, &mount, "hunter2-after").await;
    becomes(&one, "hunter2-after").await;
    drop(kept);
    assert_nothing_leaked();
    assert!(!crate::log().contains(secret_id), "the log has the secret id");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vault_refuses_or_lacks_is_said_with_the_setting_and_repaired_without_a_restart() {
    let Some(vault) = testkit::vault() else { return };
    let (mount, other, admin) = (vault.mount().await, vault.mount().await, vault.admin());
    put(&admin, &mount, "hunter2-first").await;
    let token = token(&admin, &mount, json!({"ttl": "1h"})).await;
    let kept = Kept::new();
    kept.outbound.use_vault(&by_token(&vault, &token)).unwrap();
    let missing = secret(&kept, &source(&mount, "tokne"));
    let nothing = {
        let text = format!("{}/data/nothing#token", mount.name);
        secret(&kept, &SecretSource::Vault(text.try_into().unwrap()))
    };
    let forbidden = secret(&kept, &source(&other, "token"));
    kept.outbound.read_secrets(LIMIT).await;
    for (secret, part) in [
        (&missing, "has no field tokne; it has "),
        (&nothing, "404 Not Found: nothing is there"),
        (&forbidden, "403 Forbidden: "),
    ] {
        let error = secret.current().unwrap_err();
        assert_eq!(error.class(), Class::Transient);
        let text = error.to_string();
        assert!(text.starts_with("the secret a.token: ") && text.contains(part), "{text}");
    }
    let kept = kept.start();
    let body = json!({"data": {"token": "hunter2-now", "tokne": "hunter2-too"}});
    for path in ["nothing", "app"] {
        admin.expect(Method::POST, &format!("/v1/{}/data/{path}", mount.name), body.clone()).await;
    }
    becomes(&nothing, "hunter2-now").await;
    becomes(&missing, "hunter2-too").await;
    drop(kept);

    let wrong = Kept::new();
    wrong.outbound.use_vault(&by_token(&vault, "hunter2-wrong")).unwrap();
    let refused = secret(&wrong, &source(&mount, "token"));
    wrong.outbound.read_secrets(LIMIT).await;
    let error = refused.current().unwrap_err().to_string();
    assert!(error.contains("403 Forbidden") && error.contains("check vault.token"), "{error}");
    assert_nothing_leaked();
}

#[tokio::test(flavor = "multi_thread")]
async fn version_one_of_a_kv_store_is_read_too() {
    let Some(vault) = testkit::vault() else { return };
    let (name, admin) = (unique(), vault.admin());
    let kv = json!({"type": "kv", "options": {"version": "1"}});
    admin.expect(Method::POST, &format!("/v1/sys/mounts/{name}"), kv).await;
    let path = format!("/v1/{name}/app");
    admin.expect(Method::POST, &path, json!({"token": "hunter2-v1", "ttl": "1h"})).await;
    let kept = Kept::new();
    kept.outbound.use_vault(&by_token(&vault, admin.token())).unwrap();
    let text = format!("{name}/app#token");
    let one = secret(&kept, &SecretSource::Vault(text.try_into().unwrap()));
    let _kept = kept.start();
    becomes(&one, "hunter2-v1").await;
    admin.expect(Method::POST, &path, json!({"token": "hunter2-next"})).await;
    becomes(&one, "hunter2-next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_that_is_away_costs_no_value_and_one_that_comes_later_is_read() {
    let Some(shared) = testkit::vault() else { return };
    let vault = shared.private().await;
    let (mount, admin) = (vault.mount().await, vault.admin());
    put(&admin, &mount, "hunter2-first").await;
    let token = token(&admin, &mount, json!({"ttl": "1h"})).await;
    vault.server.kill().await;
    let kept = Kept::new();
    kept.outbound.use_vault(&by_token(&vault, &token)).unwrap();
    let one = secret(&kept, &source(&mount, "token"));
    kept.outbound.read_secrets(LIMIT).await;
    let error = one.current().unwrap_err().to_string();
    assert!(error.contains("Connection refused"), "the cause is kept: {error}");
    assert_eq!(health(&kept), Err("secrets without a value: 1 of 1; the log says why".into()));
    let kept = kept.start();
    vault.server.start().await;
    becomes(&one, "hunter2-first").await;
    assert_eq!(health(&kept), Ok("secrets that are up to date: 1".into()));

    vault.server.kill().await;
    eventually("a failed reading", async || {
        crate::log().lines().any(|line| line.contains("will retry") && line.contains(&mount.name))
    })
    .await;
    assert_eq!(one.current().unwrap().expose(), "hunter2-first");
    eventually("it is reported", async || {
        health(&kept).is_err_and(|why| why.contains("the last values are kept"))
    })
    .await;
    vault.server.start().await;
    put(&vault.admin(), &mount, "hunter2-second").await;
    becomes(&one, "hunter2-second").await;
    drop(one);
    assert_eq!(
        health(&kept),
        Ok("secrets that are up to date: 0".into()),
        "nobody needs it any more"
    );
    drop(kept);
    assert_nothing_leaked();
}

#[test]
fn what_the_sign_in_needs_is_named() {
    let with = |change: fn(&mut Config)| {
        let mut config = Config {
            address: "https://vault.example".into(),
            token: "hunter2".into(),
            ..Config::default()
        };
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    let vault = |text: &str| SecretSource::Vault(text.to_owned().try_into().unwrap());
    assert!(with(|c| c.address = "vault:8200".into()).starts_with("vault.address: "));
    assert!(with(|c| c.token = "".into()).starts_with("vault.token: is empty"));
    assert!(with(|c| c.auth = Auth::AppRole).starts_with("vault.role_id: is empty"));
    assert!(with(|c| c.auth = Auth::Kubernetes).starts_with("vault.role: is empty"));
    assert!(with(|c| c.refresh_s = 0).starts_with("vault.refresh_s: "));
    let mut own = Config { address: "https://v.example".into(), ..Config::default() };
    own.token = vault("kv/data/a#b");
    assert!(own.check().unwrap_err().to_string().starts_with("vault.token: "));
    assert!(Config::default().check().is_ok());
}
