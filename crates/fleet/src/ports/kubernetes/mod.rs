//! Kubernetes API servers: what we put there, and whether it is still so.

pub mod agent_manifests;
mod drift;
mod objects;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Error, Result};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::{ApiResource, Scope, pinned_kind};
use kube::{Client, core::GroupVersionKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use agent_manifests::AgentManifests;
pub use drift::DriftWatcher;
pub use objects::{ObjectRef, covers};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// With a context for each standalone cluster, of the cluster's name.
    pub kubeconfig: Option<PathBuf>,
    /// Where the agent runs on each cluster.
    pub namespace: String,
    /// With which the agent runs: this program, in a container.
    pub image: String,
    /// A `.dockerconfigjson`, if the image is not for everyone.
    pub pull_secret_file: Option<PathBuf>,
    /// This server, as the clusters reach it. Empty: as everyone does.
    pub control_plane_url: String,
    /// How often what is on a cluster is compared with what should be, beside being watched.
    pub recheck_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            kubeconfig: None,
            namespace: "mainstay-agent".into(),
            image: format!("mainstay:{}", env!("CARGO_PKG_VERSION")),
            pull_secret_file: None,
            control_plane_url: String::new(),
            recheck_s: 300,
        }
    }
}

/// Whose fields those are that we write.
const FIELD_MANAGER: &str = "mainstay";
/// For one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The API server of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct KubeClient {
    client: Client,
    /// What each kind is called in paths, and whether it is in a namespace; asked once.
    resources: Arc<Mutex<Vec<(GroupVersionKind, Resource)>>>,
}

#[derive(Debug, Clone)]
pub struct Resource {
    pub api: ApiResource,
    pub namespaced: bool,
}

impl KubeClient {
    /// By the text of a kubeconfig, and a context of it other than the current one.
    pub async fn from_kubeconfig(kubeconfig: &str, context: Option<&str>) -> Result<KubeClient> {
        let unusable = |error: kube::config::KubeconfigError| {
            Error::unavailable(
                format!("the kubeconfig cannot be used ({error}); the cluster"),
                error,
            )
        };
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(unusable)?;
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        KubeClient::from_config(config.map_err(unusable)?)
    }

    /// The cluster that this process runs in.
    pub fn in_cluster() -> Result<KubeClient> {
        let config = kube::Config::incluster();
        KubeClient::from_config(
            config.map_err(|error| Error::unavailable("the cluster around us", error))?,
        )
    }

    fn from_config(mut config: kube::Config) -> Result<KubeClient> {
        kernel::outbound::install_tls();
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let client = Client::try_from(config);
        let client = client.map_err(|error| Error::unavailable("the cluster", error))?;
        Ok(KubeClient { client, resources: Arc::default() })
    }

    /// What the API server calls a kind.
    pub async fn resource(&self, name: &ObjectRef) -> Result<Resource> {
        let wanted = name.kind();
        let resources = self.resources.lock().iter().find(|(kind, _)| *kind == wanted).cloned();
        if let Some((_, resource)) = resources {
            return Ok(resource);
        }
        let (api, capabilities) =
            with_timeout(&format!("what {} is", wanted.kind), pinned_kind(&self.client, &wanted))
                .await?;
        let resource = Resource { api, namespaced: capabilities.scope == Scope::Namespaced };
        self.resources.lock().push((wanted, resource.clone()));
        Ok(resource)
    }

    /// All objects of a kind, in every namespace.
    pub fn all(&self, resource: &Resource) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource.api)
    }

    async fn api(&self, name: &ObjectRef) -> Result<Api<DynamicObject>> {
        let resource = self.resource(name).await?;
        let client = self.client.clone();
        Ok(if resource.namespaced {
            Api::namespaced_with(client, &name.namespace, &resource.api)
        } else {
            Api::all_with(client, &resource.api)
        })
    }

    /// Makes an object so, by server-side apply: fields that others write stay theirs, ours become
    /// ours again.
    pub async fn apply(&self, object: &Value) -> Result<Value> {
        let name = ObjectRef::from_manifest(object)?;
        let api = self.api(&name).await?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(object);
        let applied =
            with_timeout(&name.to_string(), api.patch(&name.name, &params, &patch)).await?;
        serde_json::to_value(applied).map_err(|e| Error::internal("an object of Kubernetes", e))
    }

    pub async fn get(&self, name: &ObjectRef) -> Result<Option<Value>> {
        let api = self.api(name).await?;
        let found = with_timeout(&name.to_string(), api.get_opt(&name.name)).await?;
        let value = found.map(serde_json::to_value).transpose();
        value.map_err(|e| Error::internal("an object of Kubernetes", e))
    }

    /// Whether it was there.
    pub async fn delete(&self, name: &ObjectRef) -> Result<bool> {
        let api = self.api(name).await?;
        let params = DeleteParams::background();
        let deleted = async {
            match api.delete(&name.name, &params).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
                other => other.map(|_| true),
            }
        };
        with_timeout(&name.to_string(), deleted).await
    }
}

async fn with_timeout<T>(what: &str, work: impl Future<Output = kube::Result<T>>) -> Result<T> {
    let what = format!("Kubernetes ({what})");
    match tokio::time::timeout(REQUEST_TIMEOUT, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(kube::Error::Api(status))) if [400, 422].contains(&status.code) => {
            Err(Error::invalid("manifest", format!("{what}: {}", status.message)))
        }
        // All else may pass: rights are given, kinds are added, servers come back.
        Ok(Err(error)) => {
            let why = error.to_string();
            let why: String = why.chars().take(512).collect();
            Err(Error::unavailable(format!("{what}: {why}; it"), error))
        }
        Err(_) => Err(Error::unavailable(what, "it took too long")),
    }
}
