//! The client of a real API server. It parses responses straight into the types of `model`, which
//! keep a fraction of them.

mod job_result;
mod paths;
mod read;
mod write;

use std::path::Path;
use std::sync::Arc;

use ::kubernetes::{Client, ListOptions, in_cluster, kubeconfig, merge};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kernel::Result;

use crate::model::watch::{ApiError, WatchEvent, WatchTarget};
use crate::ports::api_server::{ApiServer, Request, Response};

/// The label by which the Lease is found, whatever its name.
pub(crate) const LEASE_LABEL: (&str, &str) = ("mainstay.io/lease", "operator");

#[derive(Clone)]
pub struct Kubernetes {
    client: Client,
    /// The watched namespaces; empty for all.
    namespaces: Arc<[String]>,
}

/// Connects to the cluster of a kubeconfig, or to the one that this process runs in.
pub async fn connect(file: Option<&Path>, context: Option<&str>) -> Result<Kubernetes> {
    let inside = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    Kubernetes::with(if inside && file.is_none() && context.is_none() {
        in_cluster()?
    } else {
        kubeconfig(file, context).await?
    })
}

impl Kubernetes {
    pub fn with(config: kube::Config) -> Result<Kubernetes> {
        Ok(Kubernetes { client: Client::new(config)?, namespaces: Arc::new([]) })
    }

    /// Restricts watches to these namespaces; empty for all.
    pub fn within(mut self, namespaces: &[String]) -> Kubernetes {
        self.namespaces = namespaces.into();
        self
    }
}

#[async_trait]
impl ApiServer for Kubernetes {
    fn watch(&self, target: WatchTarget) -> BoxStream<'static, WatchEvent> {
        let collection = match paths::of_target(&target) {
            Ok(collection) => collection,
            // The class has to change first, and then its watch is restarted.
            Err(error) => {
                let error = futures::stream::once(async { WatchEvent::Error(error) });
                return error.chain(futures::stream::pending()).boxed();
            }
        };
        let own = match &target {
            WatchTarget::Streams(class) => class.namespace.as_deref().map(str::to_owned),
            _ => None,
        };
        let whole = matches!(target, WatchTarget::Classes(crate::model::CrdVersion::V1));
        let follow = |namespace: Option<String>| {
            let metadata_only = target == WatchTarget::Secrets;
            let options = ListOptions { namespace, metadata_only, ..ListOptions::default() };
            let target = target.clone();
            self.client.watch(collection.clone(), options, move |json| read::watched(&target, json))
        };
        match (own, &self.namespaces[..]) {
            (Some(own), _) => follow(Some(own)),
            (None, []) => follow(None),
            _ if whole => follow(None),
            (None, [one]) => follow(Some(one.clone())),
            (None, namespaces) => {
                let parts = namespaces.iter().map(|namespace| follow(Some(namespace.clone())));
                merge(parts.collect(), read::identity)
            }
        }
    }

    async fn send(&self, send: Request) -> Result<Response, ApiError> {
        match send {
            Request::Create(kind, manifest) => self.create(&kind, &manifest).await,
            Request::Delete { kind, object_name, uid, foreground } => {
                self.delete(&kind, &object_name, &uid, foreground).await
            }
            Request::Patch { kind, object_name, patch, status } => {
                self.patch(&kind, &object_name, &patch, status).await
            }
            Request::JobResult { object_name, uid } => {
                self.job_result(&object_name, &uid).await.map(Response::JobResult)
            }
            Request::ReadLease(object_name) => {
                self.client.read_lease(&object_name).await.map(Response::Lease)
            }
            Request::WriteLease(object_name, lease) => self
                .client
                .write_lease(&object_name, &lease, LEASE_LABEL)
                .await
                .map(|lease| Response::Lease(Some(lease))),
        }
    }
}
