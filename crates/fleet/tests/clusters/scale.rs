//! Autoscaled clusters.

use fleet::config::Scaling;
use fleet::model::cluster::{Cluster, Phase, Provider};
use kernel::query::ObjectQuery;

use crate::stage::{Stage, eventually};

async fn clusters(stage: &Stage) -> Vec<Cluster> {
    let query = ObjectQuery { kind: Some("cluster".into()), limit: 100, ..ObjectQuery::default() };
    let page = stage.store.find(&query).await.unwrap();
    page.objects.iter().map(|object| Cluster::from_object(object).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unplaced_instances_create_one_cluster_and_not_two() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::start(dir.path(), |config| {
        config.scaling = Scaling::Auto;
        config.dynamic.scale_up = true;
    })
    .await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(stage.create(name).await);
    }
    eventually("one is created", async || !clusters(&stage).await.is_empty()).await;
    for id in &ids {
        eventually("it waits", async || stage.kafka(id).await.1.waiting_for.contains("a cluster"))
            .await;
    }
    let all = clusters(&stage).await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].spec.dynamic && all[0].spec.provider == Provider::Terraform);
    assert_eq!(all[0].spec.instance_types, ["developer"]);
    let id = &all[0].id;
    stage.until_cluster(id, Phase::Provisioning).await;
    let reason = async || stage.cluster(id).await.unwrap().status.reason;
    eventually("the reason names what is missing", async || reason().await.contains("Terraform"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::start(dir.path(), |config| config.scaling = Scaling::Auto).await;
    let id = stage.create("a").await;
    eventually("it waits", async || stage.kafka(&id).await.1.waiting_for.contains("a cluster"))
        .await;
    assert_eq!(clusters(&stage).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_created_for_waiting_instances_and_deleted_when_spare() {
    let dir = tempfile::tempdir().unwrap();
    let Some(terraform) = crate::terraform::config(dir.path(), 0, "") else { return };
    let stage = Stage::start(dir.path(), |config| {
        config.scaling = Scaling::Auto;
        config.dynamic.scale_up = true;
        config.dynamic.scale_down = true;
        config.dynamic.idle_s = 1;
        config.dynamic.instance_limit = Some(2);
        config.terraform = terraform;
    })
    .await;
    let id = stage.create("demo").await;
    eventually("one is created", async || !clusters(&stage).await.is_empty()).await;
    let cluster = clusters(&stage).await.remove(0).id;
    stage.until_cluster(&cluster, Phase::Waiting).await;
    stage.agent_reports(&cluster, "True").await;
    stage.until_kafka(&id, "provisioning").await;
    stage.agent_round(&cluster).await;
    stage.until_kafka(&id, "ready").await;
    // The second instance fills it: another cluster is created, since the first is not in progress.
    let second = stage.create("second").await;
    stage.until_kafka(&second, "provisioning").await;
    eventually("another is created", async || clusters(&stage).await.len() == 2).await;
    let other = clusters(&stage).await.into_iter().find(|one| one.id != cluster).unwrap().id;
    stage.until_cluster(&other, Phase::Waiting).await;
    stage.agent_reports(&other, "True").await;
    for id in [&id, &second] {
        stage.delete(id).await;
        stage.until_kafka(id, "deprovision").await;
    }
    stage.agent_round(&cluster).await;
    for id in [&id, &second] {
        stage.until_kafka(id, "gone").await;
    }
    for id in [&cluster, &other] {
        stage.until_gone(id).await;
    }
}
