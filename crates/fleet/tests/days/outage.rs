//! A system is away in every phase of an instance's life, and comes back.

use serde_json::{Value, json};
use testkit::stores;

use crate::outside::{Outside, until_it_fails};
use crate::stage::{KAFKA, Stage, eventually};

async fn delete(stage: &Stage, id: &str) {
    let path = KAFKA.path(&format!("/{id}?async=true"));
    let gone = stage.call("alice", "DELETE", &path, &Value::Null).await;
    assert_eq!(gone.status, 202, "{}", gone.text);
}

/// It can be read and listed, whoever is away.
async fn is_served(stage: &Stage, id: &str, status: &str) {
    let one = stage.get("alice", &KAFKA.path(&format!("/{id}"))).await;
    assert_eq!((one.status, &one.body["status"]), (200, &json!(status)), "{}", one.text);
    assert_eq!(stage.get("alice", &KAFKA.path("")).await.status, 200);
}

/// The secret that an instance's data plane is told for its client.
async fn secret(stage: &Stage, id: &str) -> (String, String) {
    let list = stage.agent(KAFKA).list().await;
    let told = list.items().iter().find(|item| item["id"] == id).expect("it is told of").clone();
    let account = &told["spec"]["serviceAccounts"][0];
    let text = |name: &str| account[name].as_str().unwrap().to_owned();
    (text("principal"), text("password"))
}

#[tokio::test(flavor = "multi_thread")]
async fn keycloak_is_away_in_every_phase() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let steady = stage.create_ready(KAFKA, "alice", "steady").await;

    outside.sso.cut();
    let id = stage.create(KAFKA, "alice", "demo").await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "preparing").await;
    outside.sso.mend();
    stage.agent(KAFKA).make_ready(&id).await;
    outside.comes_right(&stage).await;

    // What is lost meanwhile comes back, with the secret that it had.
    let (client, secret) = secret(&stage, &id).await;
    outside.sso.cut();
    outside.delete_client_by_hand(&client).await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "ready").await;
    outside.sso.mend();
    outside.comes_right(&stage).await;
    assert_eq!(outside.realm.sign_in_program(&client, &secret).await.0, 200);

    outside.sso.cut();
    delete(&stage, &id).await;
    stage.agent(KAFKA).until(&id, "deleting").await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "deleting").await;
    outside.sso.mend();
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(stage.status(KAFKA, &steady).await, "ready");
    outside.comes_right(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_are_away_in_every_phase() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let steady = stage.create_ready(KAFKA, "alice", "steady").await;

    outside.dns.cut();
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_told(&id).await;
    stage.agent(KAFKA).round().await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "provisioning").await;
    outside.dns.mend();
    stage.agent(KAFKA).make_ready(&id).await;
    outside.comes_right(&stage).await;

    outside.dns.cut();
    outside.delete_records_by_hand().await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "ready").await;
    outside.dns.mend();
    outside.comes_right(&stage).await;

    outside.dns.cut();
    delete(&stage, &id).await;
    stage.agent(KAFKA).until(&id, "deleting").await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "deleting").await;
    outside.dns.mend();
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(stage.status(KAFKA, &steady).await, "ready");
    outside.comes_right(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_by_hand_comes_back_as_it_was() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    outside.comes_right(&stage).await;
    let (client, secret) = secret(&stage, &id).await;
    outside.delete_client_by_hand(&client).await;
    eventually("the same secret is good again", async || {
        outside.realm.sign_in_program(&client, &secret).await.0 == 200
    })
    .await;
    let before = outside.records().await;
    assert_eq!(before.len(), 3);
    outside.delete_records_by_hand().await;
    eventually("the names are there again", async || outside.records().await == before).await;
    assert_eq!(stage.status(KAFKA, &id).await, "ready");
    outside.comes_right(&stage).await;
}
