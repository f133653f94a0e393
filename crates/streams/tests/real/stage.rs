//! A namespace with templates, and operators that watch only it.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Event, Namespace};
use kernel::Ambient;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config as KubeConfig};
use serde_json::{Value, json};
use streams::config::Config;
use streams::controller::Operator;
use streams::ports::api_server::ApiServer;
use streams::ports::kubernetes::Kubernetes;
use testkit::kubernetes::{Access, Kubernetes as Server};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::counting::Counting;

pub const GROUP: &str = "streaming.sneaksanddata.com";

/// One server for all concurrent tests; it stops with the last of them. Its CRDs exist from the
/// start, so that the garbage collector knows them.
static SERVER: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());

pub async fn server() -> Option<Arc<Server>> {
    let mut known = SERVER.lock().await;
    if let Some(server) = known.upgrade() {
        return Some(server);
    }
    let shared = testkit::kubernetes()?;
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/crds.yaml");
    let server = Arc::new(shared.private(&[("crds", crds)]).await);
    let client = server.admin().client().await;
    create_class(&client, "test-stream", "TestStream", "test-streams").await;
    *known = Arc::downgrade(&server);
    Some(server)
}

pub async fn create_class(client: &Client, name: &str, kind: &str, plural: &str) {
    let class = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "StreamClass",
        "metadata": { "name": name },
        "spec": {
            "apiGroupRef": GROUP, "apiVersion": "v1", "kindRef": kind, "pluralName": plural,
            "secretRefs": [],
        },
    });
    let classes = cluster_wide(client, "StreamClass", "streamclasses");
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
}

pub fn cluster_wide(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(kind, plural))
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural)
}

pub async fn connect(access: &Access) -> Kubernetes {
    let kubeconfig = Kubeconfig::from_yaml(access.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = KubeConfig::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Kubernetes::with(config).unwrap()
}

/// Waits for a condition, for at most a minute.
pub async fn until<F: Future<Output = bool>>(what: &str, is: impl FnMut() -> F) {
    assert!(until_or_not(is).await, "in a minute it was never so: {what}");
}

async fn until_or_not<F: Future<Output = bool>>(mut is: impl FnMut() -> F) -> bool {
    let waited = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.is_ok()
}

pub struct Stage {
    pub access: Access,
    pub client: Client,
    pub namespace: String,
    pub kind: (String, String),
    /// Keeps the server running.
    pub _server: Option<Arc<Server>>,
}

impl Stage {
    pub async fn new() -> Option<Stage> {
        let server = server().await?;
        let stage = Stage::on(&server).await;
        Some(Stage { _server: Some(server), ..stage })
    }

    pub async fn on(server: &Server) -> Stage {
        let access = server.admin();
        let client = access.client().await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "generateName": "streams-" } })).unwrap();
        let made = namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let namespace = made.metadata.name.unwrap();
        let kind = ("TestStream".into(), "test-streams".into());
        let stage = Stage { access, client, namespace, kind, _server: None };
        for (name, image) in [("ok", "mock:ok"), ("hang", "mock:hang"), ("fail", "mock:fail")] {
            stage.template(name, image).await;
        }
        stage
    }

    pub async fn template(&self, name: &str, image: &str) {
        let template = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "StreamingJobTemplate",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "metadata": {}, "spec": {
                "backoffLimit": 0,
                "template": { "spec": {
                    "restartPolicy": "Never",
                    "containers": [{ "name": "stream", "image": image }],
                } },
            } },
        });
        let templates = self.of("StreamingJobTemplate", "streamingjobtemplates");
        let template = serde_json::from_value(template).unwrap();
        templates.create(&PostParams::default(), &template).await.unwrap();
    }

    pub fn of(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind, plural))
    }

    pub fn streams(&self) -> Api<DynamicObject> {
        self.of(&self.kind.0, &self.kind.1)
    }

    pub fn requests(&self) -> Api<DynamicObject> {
        self.of("BackfillRequest", "backfillrequests")
    }

    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn cron_jobs(&self) -> Api<CronJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A spec with templates for streaming and for backfills.
    pub fn spec(&self, stream: &str, backfill: &str) -> Value {
        let template = |name: &str| json!({ "name": name, "namespace": self.namespace });
        json!({
            "execution": {
                "layoutVersion": "v1",
                "suspended": false,
                "backfillJobTemplateRef": template(backfill),
                "streamingBackend": { "changeCapture": { "jobTemplateRef": template(stream) } },
            },
            "source": { "table": "t1" },
        })
    }

    pub async fn stream(&self, name: &str, spec: Value) -> DynamicObject {
        let stream = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": self.kind.0,
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": spec,
        });
        let stream = serde_json::from_value(stream).unwrap();
        self.streams().create(&PostParams::default(), &stream).await.unwrap()
    }

    pub async fn suspended(&self, name: &str, spec: Value) -> DynamicObject {
        let mut spec = spec;
        spec["execution"]["suspended"] = json!(true);
        self.stream(name, spec).await
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.streams().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn phase(&self, name: &str) -> String {
        let stream = self.streams().get(name).await.unwrap();
        stream.data["status"]["phase"].as_str().unwrap_or_default().into()
    }

    pub async fn message(&self, name: &str) -> String {
        let stream = self.streams().get(name).await.unwrap();
        let message = &stream.data["status"]["conditions"][0]["message"];
        message.as_str().unwrap_or_default().into()
    }

    pub async fn until_phase(&self, name: &str, phase: &str) {
        let is = until_or_not(async || self.phase(name).await == phase).await;
        if !is {
            let stream = self.streams().get(name).await.unwrap();
            let (job, events) = (self.job(name).await, self.events(name).await);
            panic!("{name} is never {phase}: {stream:#?}\n{job:#?}\n{events:?}");
        }
    }

    pub async fn job(&self, name: &str) -> Option<Job> {
        self.jobs().get_opt(name).await.unwrap()
    }

    pub async fn job_uid(&self, name: &str) -> Option<String> {
        self.job(name).await.and_then(|job| job.metadata.uid)
    }

    pub async fn delete_job(&self, name: &str) {
        self.jobs().delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// The reasons of the events on a stream.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = format!("involvedObject.name={name}");
        let events = events.list(&ListParams::default().fields(&about)).await.unwrap();
        let ours = events.items.into_iter().filter(|event| {
            event.source.as_ref().and_then(|s| s.component.as_deref()) == Some("arcane-operator")
        });
        ours.filter_map(|event| event.reason).collect()
    }

    pub fn config(&self) -> Config {
        let mut config = Config {
            probes_addr: String::new(),
            metrics_addr: String::new(),
            namespaces: vec![self.namespace.clone()],
            ..Config::default()
        };
        config.lease.namespace = self.namespace.clone();
        config
    }

    pub async fn operator(&self) -> Running {
        let api = connect(&self.access).await.within(std::slice::from_ref(&self.namespace));
        Running::start(Arc::new(api), self.config()).await
    }

    /// An operator that connects through another port.
    pub async fn operator_as(&self, access: &Access) -> Running {
        let api = connect(access).await.within(std::slice::from_ref(&self.namespace));
        Running::start(Arc::new(api), self.config()).await
    }
}

/// An operator. Dropping it requests a shutdown; [`Running::stop`] also waits for it.
pub struct Running {
    pub operator: Arc<Operator>,
    pub counting: Arc<Counting>,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Running {
    pub async fn start(api: Arc<dyn ApiServer>, config: Config) -> Running {
        let counting = Counting::new(api);
        let operator = Operator::new(counting.clone(), config, Ambient::system());
        let shutdown = CancellationToken::new();
        let run = operator.clone().run(shutdown.clone());
        let task = tokio::spawn(async move { run.await.unwrap() });
        Running { operator, counting, shutdown, task: Some(task) }
    }

    pub async fn until_acting(&self) {
        until("the operator acts", async || self.operator.is_ready() && self.operator.is_leading())
            .await;
    }

    pub async fn stop(mut self) {
        self.shutdown.cancel();
        self.task.take().unwrap().await.unwrap();
    }

    /// Like `kill -9`: nothing is finished and the Lease is not released.
    pub fn kill(self) {
        self.counting.die();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
