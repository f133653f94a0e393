//! A cluster that vanishes with everything on it.

use fleet::model::cluster;
use fleet::model::instance::{Instance, Phase};
use kernel::Key;
use serde_json::{Value, json};

use crate::agent::{Agent, obedient};
use crate::callers::{CLUSTER, OTHER_CLUSTER};
use crate::ledger;
use crate::outside::Outside;
use crate::stage::{KAFKA, Stage, eventually};

async fn instance(stage: &Stage, id: &str) -> Instance {
    let object = stage.store.object(&Key::new("kafka", id)).await.unwrap().unwrap();
    Instance::from_object(&object).unwrap()
}

async fn delete(stage: &Stage, id: &str) {
    let path = KAFKA.path(&format!("/{id}?async=true"));
    assert_eq!(stage.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
}

fn path(cluster: &str, rest: &str) -> String {
    format!("/api/v1/fleet/clusters/{cluster}{rest}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_on_a_cluster_that_vanished_comes_to_an_end_and_nothing_is_left() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let used = stage.create_ready(KAFKA, "alice", "used").await;
    let going = stage.create_ready(KAFKA, "alice", "going").await;
    delete(&stage, &going).await;
    let young = stage.create(KAFKA, "alice", "young").await;
    // This one has names already, and no data plane that says that it runs.
    let named = stage.create(KAFKA, "alice", "named").await;
    stage.agent(KAFKA).until_listed(&named).await;
    let installing = |item: &Value| {
        let mut says = obedient(item);
        says["conditions"][0] =
            json!({ "type": "Ready", "status": "False", "reason": "Installing" });
        (item["id"] == json!(named)).then_some(says)
    };
    stage.agent(KAFKA).saying(installing).round().await;
    eventually("the names are there", async || outside.records().await.len() == 9).await;

    let gone =
        stage.call("admin-full", "DELETE", &path(CLUSTER, "?force=true"), &Value::Null).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    eventually("the cluster is gone", async || {
        let object = stage.store.object(&cluster::key(CLUSTER)).await.unwrap().unwrap();
        object.deleted_at.is_some()
    })
    .await;
    eventually("all know of it", async || {
        stage.status(KAFKA, &going).await == "gone"
            && stage.status(KAFKA, &used).await == "failed"
            && instance(&stage, &young).await.status.cluster_id.is_empty()
            && instance(&stage, &named).await.status.cluster_id.is_empty()
    })
    .await;
    let failed = stage.get("alice", &KAFKA.path(&format!("/{used}"))).await;
    let why = failed.body["failed_reason"].as_str().unwrap();
    assert!(why.contains(&format!("its cluster {CLUSTER} is gone")), "{why}");
    ledger::is_right(&*stage.store, &["kafka"]).await;
    let late = stage.agent(KAFKA).report(&json!({ &used: { "conditions": [] } })).await;
    assert_eq!(late.status, 404, "{}", late.text);

    let open = json!({ "schedulable": true });
    let opened = stage.call("admin-full", "PATCH", &path(OTHER_CLUSTER, ""), &open).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    let there = |item: &Value| {
        let says = obedient(item).to_string().replace("apps.c1.", "apps.c2.");
        Some(serde_json::from_str(&says).unwrap())
    };
    let agent = Agent::new(&stage, KAFKA, "other-agent", OTHER_CLUSTER).saying(there);
    for id in [&young, &named] {
        agent.make_ready(id).await;
        assert_eq!(instance(&stage, id).await.status.cluster_id, OTHER_CLUSTER);
    }
    delete(&stage, &used).await;
    eventually("it goes without its cluster", async || stage.status(KAFKA, &used).await == "gone")
        .await;
    outside.comes_right(&stage).await;
    let counter = format!("fleet/capacity/{CLUSTER}/standard");
    let held = stage.store.counter(&counter).await.unwrap().map_or(0, |counter| counter.used);
    assert_eq!(held, 0, "nothing holds anything of a cluster that is gone");
    let live = ledger::live(&*stage.store, "kafka").await;
    assert!(live.len() == 2 && live.iter().all(|one| one.phase == Phase::Ready));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_comes_to_a_cluster_only_while_everything_on_it_would_be_counted() {
    let stage = Stage::new().await;
    let put = async |limit: i64| {
        let body = json!({ "limit": limit });
        stage.call("admin-full", "PATCH", &path(CLUSTER, ""), &body).await.status
    };
    assert_eq!(put(-1).await, 400);
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    assert_eq!(put(1).await, 400);
    delete(&stage, &id).await;
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(put(1).await, 200);
    stage.create(KAFKA, "alice", "one").await;
    let body = json!({ "name": "two" });
    let full = stage.call("alice", "POST", &KAFKA.path("?async=true"), &body).await;
    assert_eq!((full.status, full.code()), (403, 24), "{}", full.text);
    assert_eq!(put(2).await, 200);
    stage.create(KAFKA, "alice", "two").await;
    ledger::is_right(&*stage.store, &["kafka"]).await;
}
