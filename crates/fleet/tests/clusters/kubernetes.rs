//! Terraforming onto a real API server: everything is put there, and comes back.

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

/// A stage with one standalone cluster, and our own way to its API server.
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
    let ours = KubeClient::from_kubeconfig(server.admin().kubeconfig(), None).await.unwrap();
    (stage, ours)
}

pub fn unique() -> String {
    format!("t{}", kernel::Ambient::system().id())
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn everything(id: &str) -> Vec<ObjectRef> {
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

async fn is_there(ours: &KubeClient, name: &ObjectRef) -> bool {
    let found = ours.get(name).await.unwrap();
    found.is_some_and(|found| found["metadata"]["deletionTimestamp"].is_null())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_put_on_a_cluster_and_comes_back_whatever_is_done_to_it() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let (stage, ours) = stage(dir.path(), &server, &server.admin(), &id).await;
    stage.until_cluster(&id, Phase::Waiting).await;
    for name in everything(&id) {
        assert!(is_there(&ours, &name).await, "{name}");
    }
    let secret = ours.get(&everything(&id)[5]).await.unwrap().unwrap();
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
    let deployment = &everything(&id)[6];
    eventually("its pod runs on a played node", async || {
        let found = ours.get(deployment).await.unwrap();
        found.is_some_and(|found| found["status"]["readyReplicas"] == 1)
    })
    .await;

    // Deleted by hand: each comes back.
    for name in everything(&id).into_iter().skip(1) {
        assert!(ours.delete(&name).await.unwrap());
        eventually(&format!("{name} is back"), async || is_there(&ours, &name).await).await;
    }
    // Edited by hand: it is as it was.
    for (index, path, value) in [
        (6, "/spec/replicas", json!(5)),
        (6, "/spec/template/spec/containers/0/image", json!("evil:1")),
        (2, "/rules", json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }])),
        (5, "/data/sso-secret", json!("eA==")),
    ] {
        let name = &everything(&id)[index];
        let before = ours.get(name).await.unwrap().unwrap();
        let was = before.pointer(path).cloned().unwrap();
        let mut edited = before.clone();
        *edited.pointer_mut(path).unwrap() = value;
        edit(&server, &edited).await;
        let at = async || ours.get(name).await.unwrap().and_then(|o| o.pointer(path).cloned());
        eventually(&format!("{name} {path} is as it was"), async || {
            at().await == Some(was.clone())
        })
        .await;
    }
    // With everything in it.
    assert!(ours.delete(&everything(&id)[0]).await.unwrap());
    eventually("all is back", async || {
        let mut all = true;
        for name in everything(&id) {
            all &= is_there(&ours, &name).await;
        }
        all
    })
    .await;
    assert_eq!(stage.cluster(&id).await.unwrap().phase, Phase::Waiting);

    stage.agent_reports(&id, "True").await;
    stage.until_cluster(&id, Phase::Ready).await;
    stage.take_away(&id, false).await;
    stage.until_gone(&id).await;
    for index in [0, 2, 3] {
        assert!(ours.get(&everything(&id)[index]).await.unwrap().is_none(), "it is clean");
    }
}

/// As `kubectl edit` does it.
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
async fn an_api_server_that_is_away_is_waited_for() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let proxy = Proxy::to(server.address()).await;
    proxy.cut();
    let (stage, ours) = stage(dir.path(), &server, &server.admin().via(proxy.address()), &id).await;
    let at = async || stage.cluster(&id).await.unwrap();
    eventually("it says why", async || at().await.status.reason.contains("Kubernetes")).await;
    assert_eq!(at().await.phase, Phase::Provisioned);
    proxy.mend();
    stage.until_cluster(&id, Phase::Waiting).await;
    // Away again, and something is deleted meanwhile.
    proxy.cut();
    let deployment = &everything(&id)[6];
    assert!(ours.delete(deployment).await.unwrap());
    tokio::time::timeout(Duration::from_secs(5), async {
        while is_there(&ours, deployment).await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    proxy.mend();
    eventually("it is back", async || is_there(&ours, deployment).await).await;
    stage.take_away(&id, false).await;
    stage.until_gone(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_anew_watches_what_is_there() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let (first, ours) = stage(dir.path(), &server, &server.admin(), &id).await;
    first.until_cluster(&id, Phase::Waiting).await;
    let store = first.end().await;
    let deployment = &everything(&id)[6];
    assert!(ours.delete(deployment).await.unwrap());
    let (second, _) = stage_on(store, dir.path(), &server, &server.admin(), &id).await;
    eventually("it is back", async || is_there(&ours, deployment).await).await;
    assert!(ours.delete(deployment).await.unwrap());
    eventually("it is back again", async || is_there(&ours, deployment).await).await;
    second.take_away(&id, false).await;
    second.until_gone(&id).await;
}
