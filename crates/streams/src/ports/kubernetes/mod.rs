//! The client of a real API server. It parses responses straight into the types of `model`, which
//! keep a fraction of them.

mod job_result;
pub(crate) mod paths;
mod read;

use std::path::Path;
use std::sync::Arc;

use ::kubernetes::{Client, HttpRequest, ListOptions, in_cluster, kubeconfig, merge};
use async_trait::async_trait;
use futures::stream::BoxStream;
use kernel::Result;
use serde_json::{Value, json};

use crate::model::CrdVersion;
use crate::model::stream::MANAGER;
use crate::model::watch::{ApiError, Object, Resource, WatchEvent};
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
    fn watch(&self, resource: Resource) -> BoxStream<'static, WatchEvent> {
        let follow = |namespace: Option<&str>| {
            let options = ListOptions {
                namespace: namespace.map(str::to_owned),
                metadata_only: resource == Resource::Secrets,
                ..ListOptions::default()
            };
            let (collection, resource) = (paths::collection(&resource), resource.clone());
            self.client.watch(collection, options, move |json| read::object(&resource, json))
        };
        match (&resource, &self.namespaces[..]) {
            (Resource::Streams(class), _) if class.namespace.is_some() => {
                follow(class.namespace.as_deref())
            }
            // Cluster-scoped.
            (Resource::Classes(CrdVersion::V1), _) | (_, []) => follow(None),
            (_, [one]) => follow(Some(one)),
            (_, namespaces) => {
                let parts = namespaces.iter().map(|namespace| follow(Some(namespace)));
                merge(parts.collect(), Object::identity)
            }
        }
    }

    async fn send(&self, request: Request) -> Result<Response, ApiError> {
        match request {
            Request::Create(resource, manifest) => {
                let namespace = manifest.pointer("/metadata/namespace").and_then(Value::as_str);
                let path = paths::collection(&resource).path(namespace);
                let path = format!("{path}?fieldManager={MANAGER}");
                let response = self.client.send(HttpRequest::create(path, &manifest)).await?;
                read::response(&resource, &response)
            }
            Request::Patch { resource, object_name, patch, status } => {
                let path = paths::collection(&resource).object(&object_name);
                let part = if status { "/status" } else { "" };
                let path = format!("{path}{part}?fieldManager={MANAGER}");
                let response = self.client.send(HttpRequest::merge_patch(path, &patch)).await?;
                read::response(&resource, &response)
            }
            Request::Delete { resource, object_name, uid, foreground } => {
                let path = paths::collection(&resource).object(&object_name);
                let options = json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": { "uid": uid },
                    "propagationPolicy": if foreground { "Foreground" } else { "Background" },
                });
                let response = self.client.send(HttpRequest::delete(path, &options)).await?;
                // The object if it remains for a while, and a `Status` if it is gone.
                match serde_json::from_slice::<Value>(&response) {
                    Ok(status) if status["kind"] == "Status" => Ok(Response::Empty),
                    _ => read::response(&resource, &response),
                }
            }
            Request::JobResult { object_name, uid } => {
                self.job_result(&object_name, &uid).await.map(Response::JobResult)
            }
            Request::ReadLease(object_name) => {
                self.client.read_lease(&object_name).await.map(Response::Lease)
            }
            Request::WriteLease(object_name, lease) => {
                let lease = self.client.write_lease(&object_name, &lease, LEASE_LABEL).await?;
                Ok(Response::Lease(Some(lease)))
            }
        }
    }
}
