//! Clients in a real Keycloak.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet::model::sso::Client;
use fleet::ports::sso::{Config, Keycloak, Sso};
use kernel::outbound::{self, Observe, Outbound};
use kernel::{Ambient, Class, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::keycloak::Realm;
use testkit::servers::http::answer;

use crate::{outbound, whole};

fn config(realm: &Realm) -> Config {
    let (url, name) = (realm.issuer(), realm.name.clone());
    let url = url.strip_suffix(&format!("/realms/{name}")).unwrap().to_owned();
    Config {
        url,
        realm: name,
        client_id: "fleet-manager".into(),
        client_secret: "fleet-manager-secret".into(),
        ..Config::default()
    }
}

fn keycloak(realm: &Realm) -> Keycloak {
    Keycloak::new(&config(realm), &outbound()).unwrap()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn account() -> Client {
    Client {
        id: "srvc-acct-1f0c".into(),
        secret: "derived-1".into(),
        name: "my-account".into(),
        description: "for the shop".into(),
        org: "acme".into(),
        owner: "alice".into(),
        account: "4711".into(),
        attributes: map(&[("created_at", "2026-01-01T00:00:00Z")]),
        roles: Vec::new(),
        claims: map(&[("rh-org-id", "acme"), ("rh-user-id", "4711")]),
    }
}

/// The claims of the client's token, if it gets one.
async fn claims(realm: &Realm, client: &Client) -> Option<Value> {
    let (status, body) = realm.sign_in_program(&client.id, &client.secret).await;
    if status != 200 {
        return None;
    }
    let token = body["access_token"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    Some(serde_json::from_slice(&claims).unwrap())
}

/// The client in the admin API.
async fn stored(realm: &Realm, client: &str) -> Vec<Value> {
    let request = realm.admin(Method::GET, &format!("clients?clientId={client}")).await;
    answer(request).await.as_array().unwrap().clone()
}

async fn change_by_hand(realm: &Realm, client: &str, change: Value) {
    let mut body = stored(realm, client).await.remove(0);
    let path = format!("clients/{}", body["id"].as_str().unwrap());
    for (key, value) in change.as_object().unwrap() {
        body[key] = value.clone();
    }
    answer(realm.admin(Method::PUT, &path).await.json(&body)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_created_once_and_its_tokens_name_its_organisation() {
    let Some(server) = testkit::keycloak() else { return };
    let realm = server.own_realm().await;
    let sso = keycloak(&realm);
    let client = account();
    assert!(!sso.matches(&client).await.unwrap());
    sso.ensure(&client).await.unwrap();
    assert!(sso.matches(&client).await.unwrap());
    let first = stored(&realm, &client.id).await;
    sso.ensure(&client).await.unwrap();
    assert_eq!(stored(&realm, &client.id).await, first, "the second time changes nothing");

    let token = claims(&realm, &client).await.unwrap();
    assert_eq!(token["clientId"], client.id);
    assert_eq!(token["rh-org-id"], "acme");
    assert_eq!(token["rh-user-id"], "4711");
    let attributes = &first[0]["attributes"];
    assert_eq!(attributes["rh-org-id"], "acme");
    assert_eq!(attributes["username"], "alice");
    assert_eq!(attributes["rh-user-id"], "4711");
    assert_eq!(attributes["created_at"], "2026-01-01T00:00:00Z");
    assert_eq!(sso.endpoints().issuer, token["iss"]);

    sso.remove(&client.id).await.unwrap();
    assert!(stored(&realm, &client.id).await.is_empty());
    sso.remove(&client.id).await.unwrap();
    assert!(!sso.matches(&client).await.unwrap());
    assert!(claims(&realm, &client).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_deleted_by_hand_is_created_again_with_the_same_secret() {
    let Some(server) = testkit::keycloak() else { return };
    let realm = server.own_realm().await;
    let sso = keycloak(&realm);
    let client = account();
    sso.ensure(&client).await.unwrap();
    let id = stored(&realm, &client.id).await[0]["id"].as_str().unwrap().to_owned();
    answer(realm.admin(Method::DELETE, &format!("clients/{id}")).await).await;
    assert!(!sso.matches(&client).await.unwrap());
    assert!(claims(&realm, &client).await.is_none());
    sso.ensure(&client).await.unwrap();
    assert!(sso.matches(&client).await.unwrap());
    assert_eq!(claims(&realm, &client).await.unwrap()["rh-org-id"], "acme");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_drift_is_detected_and_repaired() {
    let Some(server) = testkit::keycloak() else { return };
    let realm = server.own_realm().await;
    let sso = keycloak(&realm);
    let client = account();
    sso.ensure(&client).await.unwrap();
    for drift in [
        json!({"enabled": false}),
        json!({"secret": "guessed"}),
        json!({"serviceAccountsEnabled": false}),
        json!({"directAccessGrantsEnabled": true}),
        json!({"attributes": {"rh-org-id": "globex"}}),
        json!({"protocolMappers": []}),
    ] {
        change_by_hand(&realm, &client.id, drift.clone()).await;
        assert!(!sso.matches(&client).await.unwrap(), "{drift}");
        sso.ensure(&client).await.unwrap();
        assert!(sso.matches(&client).await.unwrap(), "{drift}");
        assert_eq!(claims(&realm, &client).await.unwrap()["rh-org-id"], "acme", "{drift}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_secret_replaces_the_old_one_and_the_owner_can_change() {
    let Some(server) = testkit::keycloak() else { return };
    let realm = server.own_realm().await;
    let sso = keycloak(&realm);
    let old = account();
    sso.ensure(&old).await.unwrap();
    let new = Client { secret: "derived-2".into(), owner: "bob".into(), ..old.clone() };
    assert!(!sso.matches(&new).await.unwrap());
    sso.ensure(&new).await.unwrap();
    assert!(claims(&realm, &old).await.is_none());
    assert!(claims(&realm, &new).await.is_some());
    assert!(!sso.matches(&old).await.unwrap());
    assert_eq!(stored(&realm, &new.id).await[0]["attributes"]["username"], "bob");
}

#[tokio::test(flavor = "multi_thread")]
async fn realm_roles_are_assigned_and_restored() {
    let Some(server) = testkit::keycloak() else { return };
    let realm = server.own_realm().await;
    let sso = keycloak(&realm);
    let agent = Client {
        id: "kas-fleetshard-agent-c1".into(),
        secret: "derived".into(),
        roles: vec!["kas_fleetshard_operator".into()],
        claims: map(&[("kas-fleetshard-operator-cluster-id", "c1")]),
        ..Client::default()
    };
    sso.ensure(&agent).await.unwrap();
    sso.ensure(&agent).await.unwrap();
    let token = claims(&realm, &agent).await.unwrap();
    let roles = token["realm_access"]["roles"].as_array().unwrap();
    assert!(roles.contains(&json!("kas_fleetshard_operator")), "{token}");
    assert_eq!(token["kas-fleetshard-operator-cluster-id"], "c1");

    let id = stored(&realm, &agent.id).await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("clients/{id}/service-account-user");
    let user = answer(realm.admin(Method::GET, &path).await).await["id"].clone();
    let path = format!("users/{}/role-mappings/realm", user.as_str().unwrap());
    let has = answer(realm.admin(Method::GET, &path).await).await;
    answer(realm.admin(Method::DELETE, &path).await.json(&has)).await;
    assert!(!sso.matches(&agent).await.unwrap());
    sso.ensure(&agent).await.unwrap();
    assert!(sso.matches(&agent).await.unwrap());

    let hopeful = Client { roles: vec!["no-such-role".into()], ..agent };
    let error = sso.ensure(&hopeful).await.unwrap_err();
    assert!(whole(&error).contains("no role no-such-role; create it there"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callers_create_one_client_with_one_admin_token() {
    let Some(server) = testkit::keycloak() else { return };
    let realm = server.own_realm().await;
    let grants = Arc::new(AtomicU32::new(0));
    let counted = grants.clone();
    let observe: Observe = Arc::new(move |call| {
        if call.operation == "token" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let now = Arc::new(AtomicI64::new(0));
    let clock = now.clone();
    let ambient = Ambient::seeded(move || Timestamp(clock.load(Ordering::Relaxed)), 1);
    let outbound = Outbound::new(outbound::Config::default(), ambient, observe).unwrap();
    let sso = Keycloak::new(&config(&realm), &outbound).unwrap();
    let client = account();
    let all = futures::future::join_all((0..8).map(|_| sso.ensure(&client))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(stored(&realm, &client.id).await.len(), 1);
    assert_eq!(grants.load(Ordering::Relaxed), 1);

    // The realm's tokens live for a minute, or what is left of it when the response is written: one is
    // renewed ten seconds before that.
    now.store(45_000, Ordering::Relaxed);
    assert!(sso.matches(&client).await.unwrap());
    assert_eq!(grants.load(Ordering::Relaxed), 1);
    now.store(51_000, Ordering::Relaxed);
    let all = futures::future::join_all((0..8).map(|_| sso.matches(&client))).await;
    assert!(all.iter().all(|result| matches!(result, Ok(true))), "{all:?}");
    assert_eq!(grants.load(Ordering::Relaxed), 2);

    // By our clock the next token is always valid: only Keycloak's refusal renews it.
    let brief = json!({"attributes": {"access.token.lifespan": "2"}});
    change_by_hand(&realm, "fleet-manager", brief).await;
    now.store(200_000, Ordering::Relaxed);
    let begun = std::time::Instant::now();
    while grants.load(Ordering::Relaxed) < 4 {
        assert!(sso.matches(&client).await.unwrap());
        assert!(begun.elapsed() < Duration::from_secs(30), "its token does not expire");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_keycloak_and_the_setting_to_check() {
    let Some(server) = testkit::keycloak() else { return };
    let realm = server.realm();
    let good = config(&realm);
    let cases = [
        (
            Config { client_secret: "wrong".into(), ..good.clone() },
            "check fleet.keycloak.client_id",
        ),
        (Config { realm: "nowhere".into(), ..good.clone() }, "check fleet.keycloak.realm"),
        (
            Config {
                client_id: "robot".into(),
                client_secret: "robot-secret".into(),
                ..good.clone()
            },
            "give the client robot the roles manage-clients",
        ),
        (Config { url: "http://127.0.0.1:9".into(), ..good.clone() }, "Connection refused"),
    ];
    for (config, help) in cases {
        let sso = Keycloak::new(&config, &outbound()).unwrap();
        let error = sso.matches(&account()).await.unwrap_err();
        let text = whole(&error);
        assert_eq!(error.class(), Class::Transient, "{text}");
        assert!(text.contains("Keycloak") && text.contains(help), "{text}");
        assert!(!text.contains("secret\""), "{text}");
    }
    for bad in [
        Config { url: "nonsense".into(), ..good.clone() },
        Config { realm: String::new(), ..good.clone() },
        Config { client_id: String::new(), ..good },
    ] {
        assert_eq!(Keycloak::new(&bad, &outbound()).err().unwrap().class(), Class::Invalid);
    }
}
