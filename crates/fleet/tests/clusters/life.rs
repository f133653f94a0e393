//! Clusters of which only the agent is known: silent agents, deletion, forced deletion, and an
//! existing agent that uses the plain contract.

use fleet::model::cluster::Phase;

use crate::stage::{Stage, clusters_file, eventually};

const TWO: &str = "
clusters:
  - { name: one, cluster_id: one, provider_type: agent, kafka_instance_limit: 5 }
  - { name: two, cluster_id: two, provider_type: agent, kafka_instance_limit: 5, schedulable: false }
";
const ONE: &str = "
clusters:
  - { name: one, cluster_id: one, provider_type: agent, kafka_instance_limit: 5 }
";

async fn one_ready(dir: &std::path::Path) -> Stage {
    let file = clusters_file(dir, ONE);
    let stage = Stage::start(dir, |config| config.clusters_file = file).await;
    stage.until_cluster("one", Phase::Waiting).await;
    stage.agent_reports("one", "True").await;
    stage.until_cluster("one", Phase::Ready).await;
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_agent_serves_a_cluster_by_the_plain_contract() {
    let dir = tempfile::tempdir().unwrap();
    let stage = one_ready(dir.path()).await;
    let id = stage.create("demo").await;
    stage.until_kafka(&id, "provisioning").await;
    stage.agent_round("one").await;
    stage.until_kafka(&id, "ready").await;
    stage.agent_reports("one", "False").await;
    let waiting = stage.until_cluster("one", Phase::Waiting).await;
    assert!(!waiting.status.agent_lost);
    assert_eq!(stage.kafka(&id).await.0, "ready", "running instances are not affected");
    stage.agent_reports("one", "True").await;
    stage.until_cluster("one", Phase::Ready).await;
    stage.delete(&id).await;
    stage.until_kafka(&id, "deprovision").await;
    stage.agent_round("one").await;
    stage.until_kafka(&id, "gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_agent_is_marked_lost_until_it_reports_and_nothing_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let file = clusters_file(dir.path(), ONE);
    let stage = Stage::start(dir.path(), |config| {
        config.clusters_file = file;
        config.agent.lost_after_s = 2;
    })
    .await;
    stage.until_cluster("one", Phase::Waiting).await;
    stage.agent_reports("one", "True").await;
    let id = stage.create("demo").await;
    stage.until_kafka(&id, "provisioning").await;
    stage.agent_round("one").await;
    stage.until_kafka(&id, "ready").await;
    eventually("the agent is lost", async || stage.cluster("one").await.unwrap().status.agent_lost)
        .await;
    let lost = stage.cluster("one").await.unwrap();
    assert_eq!(lost.phase, Phase::Ready);
    assert!(
        lost.status.reason.contains("no report from its agent since"),
        "{}",
        lost.status.reason
    );
    assert_eq!(stage.kafka(&id).await.0, "ready");
    stage.agent_reports("one", "True").await;
    let back = stage.cluster("one").await.unwrap();
    assert!(!back.status.agent_lost && back.status.reason.is_empty(), "{:?}", back.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_waits_until_the_cluster_is_empty_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let stage = one_ready(dir.path()).await;
    let id = stage.create("demo").await;
    stage.until_kafka(&id, "provisioning").await;
    stage.agent_round("one").await;
    stage.until_kafka(&id, "ready").await;
    stage.delete_cluster("one", false).await;
    stage.until_cluster("one", Phase::Deprovisioning).await;
    let waiting_for = async || stage.cluster("one").await.unwrap().status.waiting_for;
    eventually("it waits for the instance", async || {
        waiting_for().await == "1 instance to be deleted"
    })
    .await;
    stage.delete(&id).await;
    stage.until_kafka(&id, "deprovision").await;
    stage.agent_round("one").await;
    stage.until_kafka(&id, "gone").await;
    stage.until_gone("one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_deletion_fails_removes_or_replaces_the_instances() {
    let dir = tempfile::tempdir().unwrap();
    let file = clusters_file(dir.path(), TWO);
    let stage = Stage::start(dir.path(), |config| config.clusters_file = file).await;
    for cluster in ["one", "two"] {
        stage.until_cluster(cluster, Phase::Waiting).await;
        stage.agent_reports(cluster, "True").await;
    }
    let used = stage.create("used").await;
    let deleted = stage.create("deleted").await;
    for id in [&used, &deleted] {
        stage.until_kafka(id, "provisioning").await;
    }
    stage.agent_round("one").await;
    for id in [&used, &deleted] {
        stage.until_kafka(id, "ready").await;
    }
    let unused = stage.create("unused").await;
    stage.until_kafka(&unused, "provisioning").await;
    stage.delete(&deleted).await;
    stage.until_kafka(&deleted, "deprovision").await;
    stage.delete_cluster("one", true).await;
    stage.until_gone("one").await;
    stage.until_kafka(&deleted, "gone").await;
    stage.until_kafka(&used, "failed").await;
    let (_, status) = stage.kafka(&used).await;
    assert!(status.failed_reason.contains("its cluster one is gone"), "{}", status.failed_reason);
    eventually("the unused one waits for another cluster", async || {
        let (phase, status) = stage.kafka(&unused).await;
        phase == "provisioning" && status.cluster_id.is_empty()
    })
    .await;
    // Now another cluster accepts instances.
    let file =
        clusters_file(dir.path(), &TWO.replace(", schedulable: false", "").replace("one", "three"));
    let store = stage.end().await;
    let stage = Stage::on(store, dir.path(), |config| config.clusters_file = file).await;
    eventually("it is placed again", async || stage.kafka(&unused).await.1.cluster_id == "two")
        .await;
    stage.agent_round("two").await;
    stage.until_kafka(&unused, "ready").await;
    stage.delete(&used).await;
    stage.until_kafka(&used, "gone").await;
}
