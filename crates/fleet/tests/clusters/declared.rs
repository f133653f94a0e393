//! The clusters file.

use fleet::model::cluster::Phase;

use crate::stage::{Stage, clusters_file, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_registered_updated_and_deleted_by_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = testkit::stores::sqlite().await.unwrap();
    let start = async |text: &str| {
        let (file, store) = (clusters_file(dir.path(), text), fresh.store.clone());
        Stage::on(store, dir.path(), |config| config.clusters_file = file).await
    };
    let stage = start(
        "clusters:\n\
         - {name: a, cluster_id: a, provider_type: agent, kafka_instance_limit: 2}\n\
         - {name: b, cluster_id: b, provider_type: agent, status: ready, kafka_instance_limit: 2}\n",
    )
    .await;
    stage.until_cluster("a", Phase::Waiting).await;
    let b = stage.until_cluster("b", Phase::Ready).await;
    assert!(b.spec.from_file && b.spec.schedulable);
    stage.agent_reports("b", "True").await;
    let id = stage.create("demo").await;
    eventually("it is on b", async || stage.kafka(&id).await.1.cluster_id == "b").await;
    stage.end().await;

    let stage = start(
        "clusters:\n\
         - {name: b, cluster_id: b, provider_type: agent, kafka_instance_limit: 7,\n\
            schedulable: false, supported_instance_type: 'standard, developer'}\n",
    )
    .await;
    stage.until_gone("a").await;
    let b = stage.cluster("b").await.unwrap();
    assert_eq!((b.spec.limit, b.spec.schedulable), (Some(7), false));
    assert_eq!(b.spec.instance_types, ["standard", "developer"]);
    assert_eq!(b.phase, Phase::Ready, "the status in the file is only the initial one");
    stage.end().await;

    let stage = start("clusters: []\n").await;
    let b = stage.cluster("b").await.unwrap();
    assert!(!b.spec.deleting, "it is not empty");
    stage.end().await;

    let stage = start("clusters:\n- {name: a, cluster_id: a, provider_type: agent}\n").await;
    let a = stage.until_cluster("a", Phase::Waiting).await;
    assert_eq!(a.spec.limit, None, "a deleted cluster is registered again from the start");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_status_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = clusters_file(dir.path(), "clusters:\n- {cluster_id: a, status: lost}\n");
    let mut config = fleet::Config { clusters_file: file, ..fleet::Config::default() };
    config.local.enabled = Some(false);
    let catalogue = config.catalogue_files().read().unwrap();
    assert_eq!(catalogue.clusters[0].status.as_deref(), Some("lost"));
    let started = tokio::spawn(async move {
        Stage::start(dir.path(), |started| *started = config).await;
    });
    assert!(started.await.is_err(), "it does not start");
}
