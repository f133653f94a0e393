//! Changes that concern many instances: no commit grows with their number.

use std::sync::Arc;

use fleet::model::instance::{Instance, Phase};
use fleet::work::recheck::PAGE;
use kernel::change::Write;
use kernel::{Change, Json, Key, ObjectQuery};
use serde_json::{Value, json};
use testkit::Memory;
use testkit::stores::{Fresh, Place};

use crate::callers::{CLUSTER, OTHER_CLUSTER};
use crate::ledger::instance;
use crate::stage::{KAFKA, Stage, eventually};

const MANY: usize = 3 * PAGE + 7;

/// Copies an instance that waits for a cluster, without a wake-up.
async fn put_waiting(stage: &Stage, id: &str) {
    let now = stage.app.ambient.now();
    let object = stage.store.object(&Key::new("kafka", id)).await.unwrap().unwrap();
    let copy = |number: usize| {
        let mut object = (*object).clone();
        object.key = Key::new("kafka", &format!("copy{number}"));
        object.name = format!("copy{number}");
        object.revision = 1;
        object.phase = Phase::Accepted.label().into();
        let mut instance = Instance::from_object(&object).unwrap();
        instance.status = Default::default();
        instance.status.since = now;
        object.status = Json::encode(&instance.status);
        Change { write: Some(Write::create(object, "created")), ..Change::default() }
    };
    let changes: Vec<Change> = (1..MANY).map(copy).collect();
    for verdict in stage.store.commit_all(changes, now).await.unwrap() {
        verdict.unwrap();
    }
}

/// How many of the instances meet a condition.
async fn count(stage: &Stage, is: impl Fn(&Instance) -> bool) -> usize {
    let mut find = ObjectQuery { kind: Some("kafka".into()), limit: 1000, ..Default::default() };
    let mut found = 0;
    loop {
        let page = stage.store.find(&find).await.unwrap();
        let instances = page.objects.iter().map(|object| Instance::from_object(object).unwrap());
        found += instances.filter(&is).count();
        find.after = page.next;
        if find.after.is_none() {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_commit_grows_with_the_number_of_instances_that_a_change_concerns() {
    let memory = Arc::new(Memory::default());
    let fresh = Fresh::new(memory.clone(), Place::Memory);
    // No file declares the clusters: a deleted one would be registered again.
    let stage = Stage::on(fresh, |config| config.clusters_file = None).await;
    let first = stage.create(KAFKA, "alice", "first").await;
    stage.agent(KAFKA).until_listed(&first).await;
    put_waiting(&stage, &first).await;

    // A cluster changes: all that wait are placed.
    let path = |cluster: &str, rest: &str| format!("/api/v1/fleet/clusters/{cluster}{rest}");
    let open = json!({ "schedulable": true });
    let opened = stage.call("admin-full", "PATCH", &path(CLUSTER, ""), &open).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    eventually("all are placed", async || {
        count(&stage, |instance| !instance.status.placement_id.is_empty()).await == MANY
    })
    .await;

    // The quota list changes: it ends for all.
    let file = stage.domain.config.quota_file.as_ref().unwrap();
    let org = instance(&stage, &first).await.org;
    let ended = format!(
        "registered_users_per_organisation:\n  - id: {org}\n    any_user: true\n    \
         granted_quota:\n      - instance_type_id: standard\n        billing_models:\n          \
         - {{ id: standard, expiration_date: 2020-01-01 }}\n"
    );
    std::fs::write(file, ended).unwrap();
    let reloaded = stage.call("admin-full", "POST", "/api/v1/fleet/reload", &Value::Null).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text);
    eventually("all expire", async || {
        count(&stage, |instance| instance.spec.expires_at.is_some()).await == MANY
    })
    .await;

    // Their cluster is deleted by force: all are placed elsewhere, fail or are deleted.
    let other = stage.call("admin-full", "PATCH", &path(OTHER_CLUSTER, ""), &open).await;
    assert_eq!(other.status, 200, "{}", other.text);
    let forced =
        stage.call("admin-full", "DELETE", &path(CLUSTER, "?force=true"), &Value::Null).await;
    assert_eq!(forced.status, 200, "{}", forced.text);
    eventually("none is left on it", async || {
        let left = |i: &Instance| i.status.cluster_id == CLUSTER && i.phase != Phase::Failed;
        count(&stage, left).await == 0
    })
    .await;
    let most = memory.wakes_max();
    assert!((1..=PAGE).contains(&most), "one change had {most} wake-ups");
}
