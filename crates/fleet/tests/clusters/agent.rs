//! `mainstay agent` between a whole server and a real API server with simulated nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet::dataplane::agent::{Settings, run};
use fleet::model::cluster::Phase;
use fleet::ports::kubernetes::{KubeClient, ObjectRef};
use kernel::Ambient;
use kernel::outbound::Outbound;
use serde_json::{Value, json};
use testkit::chaos::Proxy;
use testkit::kubernetes::{Access, Kubernetes};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::kubernetes::{edit, unique};
use crate::stage::{Stage, clusters_file, eventually};

/// An agent that is killed when the value is dropped.
struct Agent(JoinHandle<()>, CancellationToken);

impl Agent {
    async fn start(settings: Settings, access: &Access) -> Agent {
        let cluster = KubeClient::from_kubeconfig(access.kubeconfig(), None).await.unwrap();
        let outbound =
            Outbound::new(Default::default(), Ambient::system(), Arc::new(|_| ())).unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task =
            tokio::spawn(async move { run(settings, cluster, &outbound, stopped).await.unwrap() });
        Agent(task, stop)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.abort();
        self.1.cancel();
    }
}

/// A server with a cluster of which only the agent is known.
async fn stage(dir: &Path, id: &str, change: impl FnOnce(&mut fleet::Config)) -> (Stage, Settings) {
    let entry = format!("clusters:\n- {{name: {id}, cluster_id: {id}, provider_type: agent}}\n");
    let file = clusters_file(dir, &entry);
    let stage = Stage::start(dir, |config| {
        config.clusters_file = file;
        change(config);
    })
    .await;
    stage.until_cluster(id, Phase::Waiting).await;
    let settings = settings(&stage, id);
    (stage, settings)
}

fn settings(stage: &Stage, id: &str) -> Settings {
    let (client, secret) = crate::stage::agent_secret(&stage.dir, id);
    let values: BTreeMap<&str, String> = [
        ("control-plane-url", stage.url.clone()),
        ("sso-auth-server-url", stage.url.clone()),
        ("sso-client-id", client),
        ("sso-secret", secret),
        ("cluster-id", id.to_owned()),
        ("resync-interval", "600s".to_owned()),
    ]
    .into();
    Settings::from_values(|name| values.get(name).cloned()).unwrap()
}

fn names(id: &str, name: &str) -> (ObjectRef, ObjectRef, ObjectRef) {
    let namespace = format!("kafka-{id}");
    (
        ObjectRef::new("v1", "Namespace", "", &namespace),
        ObjectRef::new("v1", "Service", &namespace, name),
        ObjectRef::new("apps/v1", "StatefulSet", &namespace, name),
    )
}

async fn admin_client(server: &Kubernetes) -> KubeClient {
    KubeClient::from_kubeconfig(server.admin().kubeconfig(), None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_runs_on_the_cluster_is_repaired_and_deleted() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, cluster) = (tempfile::tempdir().unwrap(), unique());
    let (stage, settings) = stage(dir.path(), &cluster, |_| {}).await;
    let client = admin_client(&server).await;
    let _agent = Agent::start(settings, &server.admin()).await;
    stage.until_cluster(&cluster, Phase::Ready).await;

    let id = stage.create("demo").await;
    stage.until_kafka(&id, "ready").await;
    let (namespace, service, set) = names(&id, "demo");
    let found = client.get(&set).await.unwrap().unwrap();
    assert_eq!(found["status"]["readyReplicas"], 1, "its pods run");
    assert_eq!(found["metadata"]["labels"]["mainstay.io/agent"], cluster.as_str());
    assert!(client.get(&service).await.unwrap().is_some());
    assert_eq!(stage.kafka(&id).await.1.versions["kafka"], "latest");

    // Deleted or edited by hand: it is repaired.
    let before = found["metadata"]["uid"].clone();
    assert!(client.delete(&set).await.unwrap());
    eventually("it was created again", async || {
        client.get(&set).await.unwrap().is_some_and(|found| found["metadata"]["uid"] != before)
    })
    .await;
    stage.until_kafka(&id, "ready").await;
    let mut edited = client.get(&set).await.unwrap().unwrap();
    edited["spec"]["replicas"] = 3.into();
    edit(&server, &edited).await;
    eventually("it has one replica", async || {
        client.get(&set).await.unwrap().is_some_and(|found| found["spec"]["replicas"] == 1)
    })
    .await;

    // Suspended, it has no pods; resumed, it has them again.
    stage.suspend(&id, true).await;
    stage.until_kafka(&id, "suspended").await;
    assert_eq!(client.get(&set).await.unwrap().unwrap()["spec"]["replicas"], 0);
    stage.suspend(&id, false).await;
    stage.until_kafka(&id, "ready").await;
    assert_eq!(client.get(&set).await.unwrap().unwrap()["spec"]["replicas"], 1);

    stage.delete(&id).await;
    stage.until_kafka(&id, "gone").await;
    assert!(client.get(&namespace).await.unwrap().is_none(), "nothing of it is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_continues_after_its_restart() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, cluster) = (tempfile::tempdir().unwrap(), unique());
    let (stage, settings) = stage(dir.path(), &cluster, |_| {}).await;
    let client = admin_client(&server).await;
    let agent = Agent::start(settings.clone(), &server.admin()).await;
    stage.until_cluster(&cluster, Phase::Ready).await;
    let kept = stage.create("kept").await;
    let (namespace, ..) = names(&kept, "kept");
    eventually("it began", async || client.get(&namespace).await.unwrap().is_some()).await;
    drop(agent);
    let other = stage.create("other").await;
    stage.until_kafka(&other, "provisioning").await;
    let agent = Agent::start(settings.clone(), &server.admin()).await;
    for id in [&kept, &other] {
        stage.until_kafka(id, "ready").await;
    }
    // Killed during a deletion; an instance that was not deleted stays.
    stage.delete(&other).await;
    drop(agent);
    stage.until_kafka(&other, "deprovision").await;
    let _agent = Agent::start(settings, &server.admin()).await;
    stage.until_kafka(&other, "gone").await;
    assert_eq!(stage.kafka(&kept).await.0, "ready");
    assert!(client.get(&namespace).await.unwrap().is_some());
    stage.delete(&kept).await;
    stage.until_kafka(&kept, "gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_api_server_or_control_plane_is_retried() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, cluster) = (tempfile::tempdir().unwrap(), unique());
    let (stage, mut settings) = stage(dir.path(), &cluster, |_| {}).await;
    let kubernetes = Proxy::to(server.address()).await;
    let control = Proxy::to(stage.url.trim_start_matches("http://")).await;
    settings.control_plane_url = format!("http://{}", control.address());
    settings.sso_url = settings.control_plane_url.clone();
    control.cut();
    let _agent = Agent::start(settings, &server.admin().via(kubernetes.address())).await;
    control.mend();
    stage.until_cluster(&cluster, Phase::Ready).await;
    kubernetes.cut();
    let id = stage.create("demo").await;
    stage.until_kafka(&id, "provisioning").await;
    kubernetes.mend();
    stage.until_kafka(&id, "ready").await;
    control.cut();
    stage.delete(&id).await;
    control.mend();
    stage.until_kafka(&id, "gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashing_instance_fails_with_the_reason_of_kubernetes() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, cluster) = (tempfile::tempdir().unwrap(), unique());
    let kinds = dir.path().join("kinds");
    std::fs::create_dir(&kinds).unwrap();
    let text = include_str!("../../../../kinds/dinosaur.yaml");
    let text = text.replace("image: dinosaur:${desired.dinosaur}", "image: mock:${name}");
    std::fs::write(kinds.join("dinosaur.yaml"), text).unwrap();
    let (stage, settings) =
        stage(dir.path(), &cluster, |config| config.kinds_dir = Some(kinds)).await;
    let (client, mut ids) = (admin_client(&server).await, Vec::new());
    let agent = Agent::start(settings, &server.admin()).await;
    stage.until_cluster(&cluster, Phase::Ready).await;
    let create = async |name: &str| {
        let body = json!({ "name": name, "multi_az": true });
        stage.create_at("/api/dinosaurs_mgmt/v1/dinosaurs", body).await
    };
    let stored = async |id: &str| {
        let object = stage.store.object(&kernel::Key::new("dinosaur", id)).await.unwrap().unwrap();
        (object.phase.clone(), object.status.parse::<Value>().unwrap())
    };
    for (name, reason) in [("fail", "CrashLoopBackOff"), ("imagepull", "ImagePullBackOff")] {
        let id = create(name).await;
        eventually(&format!("{name} failed"), async || stored(&id).await.0 == "failed").await;
        let why = stored(&id).await.1["failed_reason"].clone();
        assert!(why.as_str().unwrap().contains(reason), "{why}");
        ids.push(id);
    }
    let good = create("ok").await;
    eventually("it runs", async || stored(&good).await.0 == "ready").await;
    ids.push(good);
    drop(agent);
    for id in ids {
        let namespace = ObjectRef::new("v1", "Namespace", "", &format!("dinosaur-{id}"));
        assert!(client.delete(&namespace).await.unwrap(), "the server is shared");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_agent_works_with_its_parameters_and_permissions() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let (stage, client) = crate::kubernetes::stage(dir.path(), &server, &server.admin(), &id).await;
    stage.until_cluster(&id, Phase::Waiting).await;
    let secret = client
        .get(&ObjectRef::new("v1", "Secret", &id, "mainstay-agent-parameters"))
        .await
        .unwrap();
    let data = secret.unwrap()["data"].clone();
    let settings = Settings::from_values(|name| {
        let bytes = STANDARD.decode(data[name].as_str()?).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    })
    .unwrap();
    assert_eq!(settings.resync, Duration::from_secs(60));
    let account = service_account(&server, &id).await;
    let _agent = Agent::start(settings, &account).await;
    stage.until_cluster(&id, Phase::Ready).await;
    let kafka = stage.create("demo").await;
    stage.until_kafka(&kafka, "ready").await;
    stage.delete(&kafka).await;
    stage.until_kafka(&kafka, "gone").await;
    stage.delete_cluster(&id, false).await;
    stage.until_gone(&id).await;
}

/// Access with the permissions of the agent's service account only.
async fn service_account(server: &Kubernetes, namespace: &str) -> Access {
    server.admin().of_account(namespace, "mainstay-agent").await
}
