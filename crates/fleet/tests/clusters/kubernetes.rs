//! Installing the agent on a real API server, and repairing drift.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fleet::model::cluster::Phase;
use fleet::ports::kubernetes::{KubeClient, ObjectRef};
use kernel::Store;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use testkit::chaos::Proxy;
use testkit::kubernetes::{Access, Kubernetes};

use crate::stage::{Stage, clusters_file, eventually, store};

/// A kubeconfig with a context of this name.
fn kubeconfig(dir: &Path, access: &Access, context: &str) -> PathBuf {
    let mut config = Kubeconfig::from_yaml(access.kubeconfig()).unwrap();
    config.contexts[0].name = context.into();
    config.current_context = None;
    let file = dir.join("kubeconfig");
    std::fs::write(&file, serde_yaml_ng::to_string(&config).unwrap()).unwrap();
    file
}

/// A stage with one standalone cluster, and an admin's client of its API server.
pub async fn stage(dir: &Path, server: &Kubernetes, via: &Access, id: &str) -> (Stage, KubeClient) {
    stage_on(store(dir), dir, server, via, id).await
}

async fn stage_on(
    store: Arc<dyn Store>,
    dir: &Path,
    server: &Kubernetes,
    via: &Access,
    id: &str,
) -> (Stage, KubeClient) {
    let pull = dir.join("pull.json");
    std::fs::write(&pull, r#"{"auths":{}}"#).unwrap();
    let entry =
        format!("clusters:\n- {{name: {id}, cluster_id: {id}, provider_type: standalone}}\n");
    let (file, kubeconfig) = (clusters_file(dir, &entry), kubeconfig(dir, via, id));
    let stage = Stage::on(store, dir, |config| {
        config.clusters_file = file;
        config.kubernetes.kubeconfig = Some(kubeconfig);
        config.kubernetes.namespace = id.into();
        config.kubernetes.pull_secret_file = Some(pull);
    })
    .await;
    let client = KubeClient::from_kubeconfig(server.admin().kubeconfig(), None).await.unwrap();
    (stage, client)
}

pub fn unique() -> String {
    format!("t{}", kernel::Ambient::system().id())
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn installed(id: &str) -> Vec<ObjectRef> {
    vec![
        ObjectRef::new("v1", "Namespace", "", id),
        ObjectRef::new("v1", "ServiceAccount", id, "mainstay-agent"),
        ObjectRef::new(RBAC, "ClusterRole", "", id),
        ObjectRef::new(RBAC, "ClusterRoleBinding", "", id),
        ObjectRef::new("v1", "Secret", id, "mainstay-pull-secret"),
        ObjectRef::new("v1", "Secret", id, "mainstay-agent-parameters"),
        ObjectRef::new("apps/v1", "Deployment", id, "mainstay-agent"),
    ]
}

async fn exists(client: &KubeClient, name: &ObjectRef) -> bool {
    let found = client.get(name).await.unwrap();
    found.is_some_and(|found| found["metadata"]["deletionTimestamp"].is_null())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_installation_is_complete_and_all_drift_is_repaired() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let (stage, client) = stage(dir.path(), &server, &server.admin(), &id).await;
    stage.until_cluster(&id, Phase::Waiting).await;
    for name in installed(&id) {
        assert!(exists(&client, &name).await, "{name}");
    }
    let secret = client.get(&installed(&id)[5]).await.unwrap().unwrap();
    let data = secret["data"].as_object().unwrap();
    for parameter in [
        "sso-auth-server-url",
        "sso-client-id",
        "sso-secret",
        "control-plane-url",
        "cluster-id",
        "poll-interval",
        "resync-interval",
    ] {
        assert!(data.contains_key(parameter), "{parameter}");
    }
    let deployment = &installed(&id)[6];
    eventually("its pod runs on a simulated node", async || {
        let found = client.get(deployment).await.unwrap();
        found.is_some_and(|found| found["status"]["readyReplicas"] == 1)
    })
    .await;

    // Deleted by hand: each is created again.
    for name in installed(&id).into_iter().skip(1) {
        assert!(client.delete(&name).await.unwrap());
        eventually(&format!("{name} is back"), async || exists(&client, &name).await).await;
    }
    // Edited by hand: the edit is reverted.
    for (index, path, value) in [
        (6, "/spec/replicas", json!(5)),
        (6, "/spec/template/spec/containers/0/image", json!("evil:1")),
        (2, "/rules", json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }])),
        (5, "/data/sso-secret", json!("eA==")),
    ] {
        let name = &installed(&id)[index];
        let before = client.get(name).await.unwrap().unwrap();
        let original = before.pointer(path).cloned().unwrap();
        let mut edited = before.clone();
        *edited.pointer_mut(path).unwrap() = value;
        edit(&server, &edited).await;
        let current =
            async || client.get(name).await.unwrap().and_then(|o| o.pointer(path).cloned());
        eventually(&format!("{name} {path} is reverted"), async || {
            current().await == Some(original.clone())
        })
        .await;
    }
    // The namespace with everything in it.
    assert!(client.delete(&installed(&id)[0]).await.unwrap());
    eventually("all of it exists again", async || {
        let mut all = true;
        for name in installed(&id) {
            all &= exists(&client, &name).await;
        }
        all
    })
    .await;
    assert_eq!(stage.cluster(&id).await.unwrap().phase, Phase::Waiting);

    stage.agent_reports(&id, "True").await;
    stage.until_cluster(&id, Phase::Ready).await;
    stage.delete_cluster(&id, false).await;
    stage.until_gone(&id).await;
    for index in [0, 2, 3] {
        assert!(client.get(&installed(&id)[index]).await.unwrap().is_none(), "nothing is left");
    }
}

/// Edits an object as `kubectl edit` does.
pub async fn edit(server: &Kubernetes, object: &Value) {
    let name = ObjectRef::from_manifest(object).unwrap();
    let client = server.admin().client().await;
    let resource = kube::discovery::pinned_kind(&client, &name.kind()).await.unwrap().0;
    let api: kube::Api<kube::api::DynamicObject> = match name.namespace.as_str() {
        "" => kube::Api::all_with(client, &resource),
        namespace => kube::Api::namespaced_with(client, namespace, &resource),
    };
    let mut patch = object.clone();
    for managed in ["resourceVersion", "managedFields", "generation", "uid", "creationTimestamp"] {
        patch["metadata"].as_object_mut().unwrap().remove(managed);
    }
    let patch = kube::api::Patch::Merge(patch);
    api.patch(&name.name, &kube::api::PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_api_server_is_retried() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let proxy = Proxy::to(server.address()).await;
    proxy.cut();
    let (stage, client) =
        stage(dir.path(), &server, &server.admin().via(proxy.address()), &id).await;
    let cluster = async || stage.cluster(&id).await.unwrap();
    eventually("the reason is recorded", async || {
        cluster().await.status.reason.contains("Kubernetes")
    })
    .await;
    assert_eq!(cluster().await.phase, Phase::Provisioned);
    proxy.mend();
    stage.until_cluster(&id, Phase::Waiting).await;
    // Unreachable again, and an object is deleted meanwhile.
    proxy.cut();
    let deployment = &installed(&id)[6];
    assert!(client.delete(deployment).await.unwrap());
    tokio::time::timeout(Duration::from_secs(5), async {
        while exists(&client, deployment).await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    proxy.mend();
    eventually("it exists again", async || exists(&client, deployment).await).await;
    stage.delete_cluster(&id, false).await;
    stage.until_gone(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_repairs_drift() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let (first, client) = stage(dir.path(), &server, &server.admin(), &id).await;
    first.until_cluster(&id, Phase::Waiting).await;
    let store = first.end().await;
    let deployment = &installed(&id)[6];
    assert!(client.delete(deployment).await.unwrap());
    let (second, _) = stage_on(store, dir.path(), &server, &server.admin(), &id).await;
    eventually("it exists again", async || exists(&client, deployment).await).await;
    assert!(client.delete(deployment).await.unwrap());
    eventually("it exists again after the restart", async || exists(&client, deployment).await)
        .await;
    second.delete_cluster(&id, false).await;
    second.until_gone(&id).await;
}
