//! Service accounts whose clients are in a real Keycloak.

use std::time::Duration;

use fleet::model::account::{self, Phase, Spec};
use fleet::ports::sso;
use fleet::ports::sso::service_account_client;
use kernel::change::{Take, Wake, Write};
use kernel::{Change, Json, Lane, Object, Timestamp};
use reqwest::Method;
use serde_json::Value;
use testkit::keycloak::Realm;
use testkit::servers::http::answer;

use crate::accounts::{make, path, text};
use crate::callers::ORG;
use crate::stage::{Stage, eventually};

fn config(url: &str, realm: &str) -> sso::Config {
    sso::Config {
        url: url.into(),
        realm: realm.into(),
        client_id: "fleet-manager".into(),
        client_secret: "fleet-manager-secret".into(),
        ..sso::Config::default()
    }
}

/// A stage with a realm of its own; none without a Keycloak.
async fn with_keycloak() -> Option<(Stage, Realm)> {
    let realm = testkit::keycloak()?.own_realm().await;
    let url = realm.issuer();
    let url = url.strip_suffix(&format!("/realms/{}", realm.name)).unwrap().to_owned();
    let sso = config(&url, &realm.name);
    Some((Stage::configured(|config| config.keycloak = sso).await, realm))
}

async fn signs_in(realm: &Realm, client: &str, secret: &str) -> bool {
    realm.sign_in_program(client, secret).await.0 == 200
}

/// The ids under which Keycloak has a client.
async fn stored(realm: &Realm, client: &str) -> Vec<String> {
    let found = answer(realm.admin(Method::GET, &format!("clients?clientId={client}")).await).await;
    let ids = found.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned());
    ids.collect()
}

async fn wake(stage: &Stage, id: &str) {
    let now = stage.app.ambient.now();
    let wake = Wake { key: account::key(id), org: ORG.into(), lane: Lane::Normal, due: now };
    let change = Change { wakes: vec![wake], ..Change::default() };
    kernel::store::commit(stage.store.as_ref(), change, now).await.unwrap();
}

async fn is_history(stage: &Stage, id: &str) -> bool {
    let object = stage.store.object(&account::key(id)).await.unwrap();
    object.is_some_and(|object| object.deleted_at.is_some())
}

async fn used(stage: &Stage) -> i64 {
    let counter = stage.store.counter(&account::counter(ORG)).await.unwrap();
    counter.map_or(0, |counter| counter.used)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_there_with_the_answer_and_gone_after_the_account() {
    let Some((stage, realm)) = with_keycloak().await else { return };
    let made = make(&stage, "alice", "robot").await;
    assert_eq!(made.status, 202, "{}", made.text);
    let (id, client) = (text(&made, "id"), text(&made, "client_id"));
    let old = text(&made, "client_secret");
    assert!(signs_in(&realm, client, old).await);

    let reset = path(&format!("/{id}/reset_credentials"));
    let new = stage.call("alice", "POST", &reset, &Value::Null).await;
    assert_eq!(new.status, 200, "{}", new.text);
    let new = text(&new, "client_secret");
    assert!(signs_in(&realm, client, new).await && !signs_in(&realm, client, old).await);

    let by_hand = stored(&realm, client).await.remove(0);
    answer(realm.admin(Method::DELETE, &format!("clients/{by_hand}")).await).await;
    wake(&stage, id).await;
    eventually("it is back with its secret", async || signs_in(&realm, client, new).await).await;

    let gone = stage.call("alice", "DELETE", &path(&format!("/{id}")), &Value::Null).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    assert_eq!(stage.get("alice", &path("")).await.items().len(), 0);
    eventually("it is history", async || is_history(&stage, id).await).await;
    assert!(stored(&realm, client).await.is_empty());
    assert_eq!(used(&stage).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_half_made_is_removed_everywhere() {
    let Some((stage, realm)) = with_keycloak().await else { return };
    let made = make(&stage, "alice", "whole").await;
    let fleet = stage.fleet.clone();
    let id = "00000000-0000-4000-8000-000000000001";
    let client = account::client_id(id);
    let begun = Timestamp(stage.app.ambient.now().0 - 61_000);
    let mut object =
        Object::new(account::key(id), ORG, "alice", "half", Phase::Creating.label(), begun);
    object.spec = Json::encode(&Spec { client_id: client.clone(), ..Spec::default() });
    let take = Take {
        counter: account::counter(ORG),
        holder: object.key.to_string(),
        amount: 1,
        limit: 50,
    };
    let half = account::Account::from_object(&object).unwrap();
    fleet.ports.sso.ensure(&service_account_client(&fleet.secrets, &half)).await.unwrap();
    let change = Change {
        takes: vec![take],
        write: Some(Write::create(object, Phase::Creating.label())),
        ..Change::default()
    };
    kernel::store::commit(stage.store.as_ref(), change, begun).await.unwrap();
    assert_eq!(stage.get("alice", &path("")).await.items().len(), 1, "it is nobody's yet");
    wake(&stage, id).await;
    eventually("it is history", async || is_history(&stage, id).await).await;
    assert!(stored(&realm, &client).await.is_empty());
    assert_eq!(used(&stage).await, 1);
    assert_eq!(stored(&realm, text(&made, "client_id")).await.len(), 1, "the other one stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_sign_in_system_nothing_is_made_and_nothing_counts() {
    let stage =
        Stage::configured(|config_| config_.keycloak = config("http://127.0.0.1:9", "x")).await;
    let limit = Duration::from_secs(60);
    let made = tokio::time::timeout(limit, make(&stage, "alice", "robot")).await.unwrap();
    assert_eq!((made.status, made.code()), (500, 110), "{}", made.text);
    assert_eq!(stage.get("alice", &path("")).await.items().len(), 0);
    assert_eq!(used(&stage).await, 0);
}
