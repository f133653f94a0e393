//! From a POST to ready and away again, on every store.

use serde_json::{Value, json};

use crate::stage::{DINOSAUR, KAFKA, Stage};

async fn an_instance_comes_and_goes(stage: &Stage) {
    for api in [KAFKA, DINOSAUR] {
        let id = stage.create_ready(api, "alice", "demo").await;
        let seen = stage.get("bob", &api.path(&format!("/{id}"))).await;
        assert_eq!((seen.status, &seen.body["status"]), (200, &json!("ready")), "{}", seen.text);
        let path = api.path(&format!("/{id}?async=true"));
        let deleted = stage.call("alice", "DELETE", &path, &json!(null)).await;
        assert_eq!(deleted.status, 202, "{}", deleted.text);
        stage.agent(api).make_gone(&id).await;
        assert_eq!(stage.get("alice", &api.path(&format!("/{id}"))).await.status, 404);
        assert_eq!(stage.agent(api).list().await.items().len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_comes_and_goes_on_sqlite() {
    an_instance_comes_and_goes(&Stage::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_comes_and_goes_on_postgres() {
    if let Some(stage) = Stage::on_postgres().await {
        an_instance_comes_and_goes(&stage).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_server_was_asked_for_another_one_shows_and_finishes() {
    let Some(stage) = Stage::on_postgres().await else { return };
    let other = stage.replica().await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    let seen = other.get("bob", &KAFKA.path(&format!("/{id}"))).await;
    assert_eq!((seen.status, &seen.body["name"]), (200, &json!("demo")), "{}", seen.text);
    other.agent(KAFKA).make_ready(&id).await;
    let seen = stage.get("alice", &KAFKA.path(&format!("/{id}"))).await;
    assert_eq!(seen.body["status"], "ready", "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_data_plane_calls_broken_has_failed_until_it_is_ready_again() {
    let stage = Stage::new().await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    let broken = |_: &Value| {
        let ready = json!({ "type": "Ready", "status": "False", "reason": "Error",
            "message": "no disk" });
        Some(json!({ "conditions": [ready] }))
    };
    stage.agent(KAFKA).saying(broken).until(&id, "failed").await;
    let path = KAFKA.path(&format!("/{id}"));
    let failed = stage.get("alice", &path).await;
    assert!(failed.body["failed_reason"].as_str().unwrap().contains("no disk"), "{}", failed.text);
    stage.agent(KAFKA).make_ready(&id).await;
    let ready = stage.get("alice", &path).await;
    assert_eq!(ready.body.get("failed_reason"), None, "{}", ready.text);
}
