//! A cluster that vanishes with everything on it.

use fleet::model::cluster;
use fleet::model::instance::Phase;
use serde_json::{Value, json};

use crate::agent::{Agent, obedient};
use crate::callers::{CLUSTER, OTHER_CLUSTER};
use crate::ledger::{self, delete, instance};
use crate::outside::Outside;
use crate::stage::{KAFKA, Stage, eventually};

fn path(cluster: &str, rest: &str) -> String {
    format!("/api/v1/fleet/clusters/{cluster}{rest}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instances_of_a_vanished_cluster_are_failed_removed_or_replaced() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let used = stage.create_ready(KAFKA, "alice", "used").await;
    let deleted = stage.create_ready(KAFKA, "alice", "deleted").await;
    delete(&stage, &deleted).await;
    let young = stage.create(KAFKA, "alice", "young").await;
    // This one has DNS records already, and its data plane has not reported it as ready.
    let named = stage.create(KAFKA, "alice", "named").await;
    stage.agent(KAFKA).until_listed(&named).await;
    let installing = |item: &Value| {
        let mut report = obedient(item);
        report["conditions"][0] =
            json!({ "type": "Ready", "status": "False", "reason": "Installing" });
        (item["id"] == json!(named)).then_some(report)
    };
    stage.agent(KAFKA).saying(installing).round().await;
    eventually("the records exist", async || outside.records().await.len() == 9).await;

    let forced =
        stage.call("admin-full", "DELETE", &path(CLUSTER, "?force=true"), &Value::Null).await;
    assert_eq!(forced.status, 200, "{}", forced.text);
    eventually("the cluster is gone", async || {
        let object = stage.store.object(&cluster::key(CLUSTER)).await.unwrap().unwrap();
        object.deleted_at.is_some()
    })
    .await;
    eventually("all instances react", async || {
        stage.status(KAFKA, &deleted).await == "gone"
            && stage.status(KAFKA, &used).await == "failed"
            && instance(&stage, &young).await.status.cluster_id.is_empty()
            && instance(&stage, &named).await.status.cluster_id.is_empty()
    })
    .await;
    let failed = stage.get("alice", &KAFKA.path(&format!("/{used}"))).await;
    let why = failed.body["failed_reason"].as_str().unwrap();
    assert!(why.contains(&format!("its cluster {CLUSTER} is gone")), "{why}");
    ledger::check(&*stage.store, &["kafka"]).await;
    let late = stage.agent(KAFKA).report(&json!({ &used: { "conditions": [] } })).await;
    assert_eq!(late.status, 404, "{}", late.text);

    let open = json!({ "schedulable": true });
    let opened = stage.call("admin-full", "PATCH", &path(OTHER_CLUSTER, ""), &open).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    let on_other = |item: &Value| {
        let report = obedient(item).to_string().replace("apps.c1.", "apps.c2.");
        Some(serde_json::from_str(&report).unwrap())
    };
    let agent = Agent::new(&stage, KAFKA, "other-agent", OTHER_CLUSTER).saying(on_other);
    for id in [&young, &named] {
        agent.make_ready(id).await;
        assert_eq!(instance(&stage, id).await.status.cluster_id, OTHER_CLUSTER);
    }
    delete(&stage, &used).await;
    eventually("it is deleted without its cluster", async || {
        stage.status(KAFKA, &used).await == "gone"
    })
    .await;
    outside.until_consistent(&stage).await;
    let counter = format!("fleet/capacity/{CLUSTER}/standard");
    let held = stage.store.counter(&counter).await.unwrap().map_or(0, |counter| counter.used);
    assert_eq!(held, 0, "nothing holds capacity of a deleted cluster");
    let live = ledger::live(&*stage.store, "kafka").await;
    assert!(live.len() == 2 && live.iter().all(|one| one.phase == Phase::Ready));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_added_only_to_an_empty_cluster() {
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
    ledger::check(&*stage.store, &["kafka"]).await;
}
