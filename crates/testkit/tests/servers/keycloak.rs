//! Keycloak through our own identity, and its admin API over HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::Ambient;
use kernel::identity::{Config, Identity, IssuerConfig, Principal};
use kernel::outbound::{self, Outbound};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::keycloak::Realm;
use testkit::servers::http::{answer, try_answer};

/// Trusts these realms, as far as their tokens are meant for us.
fn identity(realms: &[&Realm]) -> Identity {
    outbound::install_tls();
    let ambient = Ambient::system();
    let issuer = |realm: &&Realm| IssuerConfig::new(&realm.issuer(), "mainstay");
    let config = Config {
        issuers: realms.iter().map(issuer).collect(),
        clock_skew_s: 0,
        ..Config::default()
    };
    let outbound =
        Outbound::new(outbound::Config::default(), ambient.clone(), Arc::new(|_| {})).unwrap();
    let nowhere = std::path::Path::new("/nonexistent");
    Identity::start(config, nowhere, "http://127.0.0.1", ambient, &outbound).unwrap()
}

async fn refusal(identity: &Identity, token: &str) -> String {
    identity.authenticate(token).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_tells_who_its_user_is_and_what_they_are() {
    let Some(keycloak) = testkit::keycloak() else { return };
    let realm = keycloak.realm();
    let identity = identity(&[&realm]);
    let users = [
        ("alice", "acme", false, None),
        ("bob", "acme", true, None),
        ("carol", "globex", false, None),
        ("dave", "", false, None),
        ("reader", "", false, Some("read")),
        ("writer", "", false, Some("write")),
        ("admin", "", false, Some("full")),
    ];
    for (user, org, org_admin, role) in users {
        let principal = identity.authenticate(&realm.token(user).await).await.unwrap();
        let roles =
            role.map(|role| [format!("admin-{role}"), format!("kas-fleet-manager-admin-{role}")]);
        let expected = Principal {
            subject: user.into(),
            issuer: realm.issuer(),
            org: org.into(),
            org_admin,
            roles: roles.into_iter().flatten().collect(),
            ..Principal::default()
        };
        assert_eq!(*principal, expected);
        assert_eq!(principal.is_admin(), role.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_tells_which_program_it_is_and_whose_agent() {
    let Some(keycloak) = testkit::keycloak() else { return };
    let realm = keycloak.realm();
    let identity = identity(&[&realm]);
    let programs = [
        ("robot", "acme", None),
        ("kas-fleetshard-agent-cluster-1", "", Some("cluster-1")),
        ("old-agent", "", Some("cluster-2")),
    ];
    for (client, org, agent_of) in programs {
        let token = realm.program_token(client).await;
        let principal = identity.authenticate(&token).await.unwrap();
        assert_eq!(principal.subject, format!("service-account-{client}"));
        assert_eq!((principal.org.as_str(), principal.agent_of.as_deref()), (org, agent_of));
        assert_eq!(principal.client, client);
        assert!(!principal.is_admin() && !principal.org_admin);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_foreign_changed_or_for_something_else_is_refused() {
    let Some(keycloak) = testkit::keycloak() else { return };
    let (ours, foreign) = (keycloak.realm(), keycloak.own_realm().await);
    let trusting = identity(&[&ours]);
    let token = foreign.token("alice").await;
    let why = refusal(&trusting, &token).await;
    assert!(why.contains(&format!("this server trusts {}", ours.issuer())), "{why}");
    assert_eq!(identity(&[&foreign]).authenticate(&token).await.unwrap().subject, "alice");

    let token = ours.token("alice").await;
    let [header, claims, _] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
    let other = ours.token("bob").await;
    let (_, signature) = other.rsplit_once('.').unwrap();
    let why = refusal(&trusting, &format!("{header}.{claims}.{signature}")).await;
    assert!(why.contains("signature is wrong"), "{why}");

    let (_, tokens) = ours.sign_in("mainstay-cli", "alice").await;
    let why = refusal(&trusting, tokens["refresh_token"].as_str().unwrap()).await;
    assert!(why.contains("this is a refresh token"), "{why}");
    // A client of Keycloak's own, whose tokens are not for us.
    let (_, tokens) = ours.sign_in("admin-cli", "alice").await;
    let why = refusal(&trusting, tokens["access_token"].as_str().unwrap()).await;
    assert!(why.contains("its `aud` must be mainstay"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_refused_when_its_time_is_over() {
    let Some(keycloak) = testkit::keycloak() else { return };
    let realm = keycloak.realm();
    let identity = identity(&[&realm]);
    // On a slow machine it may be over before it was seen once.
    let (token, begun) = (realm.brief_token("alice").await, Instant::now());
    let why = loop {
        match identity.authenticate(&token).await {
            Err(error) => break error.to_string(),
            Ok(principal) => assert_eq!(principal.subject, "alice"),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it is for ever");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(why.contains("the token expired at"), "{why}");
}

/// The client of this name, as the admin API tells of it.
async fn found(realm: &Realm, client: &str) -> Vec<Value> {
    let request = realm.admin(Method::GET, &format!("clients?clientId={client}")).await;
    answer(request).await.as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_made_gets_a_new_secret_and_is_deleted_also_across_kills() {
    let Some(shared) = testkit::keycloak() else { return };
    let own = shared.private().await;
    let realm = own.realm();
    let new = json!({
        "clientId": "srvc-acct-1",
        "serviceAccountsEnabled": true,
        "standardFlowEnabled": false,
        "attributes": {"created_by": "alice"}
    });
    answer(realm.admin(Method::POST, "clients").await.json(&new)).await;
    let (status, why) = try_answer(realm.admin(Method::POST, "clients").await.json(&new)).await;
    assert_eq!(status, 409, "{why}");
    own.server.kill().await;
    own.server.start().await;

    let client = found(&realm, "srvc-acct-1").await.remove(0);
    assert_eq!(client["attributes"]["created_by"], "alice");
    let (id, first) = (client["id"].as_str().unwrap(), client["secret"].as_str().unwrap());
    assert_eq!(realm.sign_in_program("srvc-acct-1", first).await.0, 200);
    let path = format!("clients/{id}/client-secret");
    let second = answer(realm.admin(Method::POST, &path).await).await;
    own.server.kill().await;
    own.server.start().await;

    assert_eq!(answer(realm.admin(Method::GET, &path).await).await["value"], second["value"]);
    assert_eq!(realm.sign_in_program("srvc-acct-1", first).await.0, 401);
    let token = realm.sign_in_program("srvc-acct-1", second["value"].as_str().unwrap()).await;
    let token = token.1["access_token"].as_str().unwrap().to_owned();
    let principal = identity(&[&realm]).authenticate(&token).await.unwrap();
    assert_eq!(principal.subject, "service-account-srvc-acct-1");
    answer(realm.admin(Method::DELETE, &format!("clients/{id}")).await).await;
    assert!(found(&realm, "srvc-acct-1").await.is_empty());

    own.server.pause().await;
    let asking = realm.token("alice");
    tokio::pin!(asking);
    let waits = tokio::time::timeout(Duration::from_millis(200), &mut asking).await;
    assert!(waits.is_err(), "it answers although it stands still");
    own.server.resume().await;
    asking.await;
}
