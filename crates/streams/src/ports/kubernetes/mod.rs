//! The client of a real API server. It parses responses straight into the types of `model`, which
//! keep a fraction of them; kube's client brings connections, TLS and credentials.

mod http;
mod job_result;
pub(crate) mod lease;
mod multi_namespace;
mod paths;
mod read;
mod watch;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kernel::{Ambient, Error, Result};
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::model::watch::{ApiError, WatchEvent, WatchTarget};
use crate::ports::api_server::{ApiServer, Request, Response};
use watch::Watch;

/// The timeout of connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// The TCP keep-alive time.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The timeout of any request but a watch. The API server itself gives up after a minute, but a
/// request that took ten seconds is better sent again.
const REQUEST: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Kubernetes {
    client: Client,
    ambient: Ambient,
    /// The watched namespaces; empty for all.
    namespaces: Arc<[String]>,
}

/// Connects to the cluster of a kubeconfig, or to the one that this process runs in.
pub async fn connect(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Kubernetes> {
    let inside = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let config = match kubeconfig {
        None if inside && context.is_none() => Config::incluster()
            .map_err(|error| Error::unavailable("the in-cluster API server", error))?,
        path => {
            let text = match &path {
                Some(path) => Kubeconfig::read_from(path),
                None => Kubeconfig::read(),
            };
            let unusable = |error: kube::config::KubeconfigError| {
                let which = path.as_ref().map(|path| path.display().to_string());
                Error::invalid(
                    "kubeconfig",
                    format!("{} cannot be used: {error}", which.as_deref().unwrap_or("it")),
                )
            };
            let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
            let kubeconfig = text.map_err(unusable)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?
        }
    };
    Kubernetes::with(config)
}

impl Kubernetes {
    pub fn with(mut config: Config) -> Result<Kubernetes> {
        kernel::outbound::install_tls();
        config.connect_timeout = Some(CONNECT);
        // The controller decides about retries and records them.
        config.default_retry = false;
        let client = match config.proxy_url {
            Some(_) => Client::try_from(config),
            None => direct(config),
        };
        let client = client.map_err(|error| Error::unavailable("the API server", error))?;
        Ok(Kubernetes { client, ambient: Ambient::system(), namespaces: Arc::new([]) })
    }

    /// Restricts watches to these namespaces; empty for all.
    pub fn within(mut self, namespaces: &[String]) -> Kubernetes {
        self.namespaces = namespaces.into();
        self
    }

    /// For requests that the operator does not make.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Builds a client like kube's, with TCP keep-alive: a watch is silent for up to a minute, and a
/// router may drop an idle connection earlier.
fn direct(config: Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE / 3));
    tcp.set_keepalive_retries(Some(3));
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(tls));
    Ok(Client::new(service, config.default_namespace))
}

#[async_trait]
impl ApiServer for Kubernetes {
    fn watch(&self, target: WatchTarget) -> BoxStream<'static, WatchEvent> {
        let own = match &target {
            WatchTarget::Streams(class) => class.namespace.as_deref().map(str::to_owned),
            _ => None,
        };
        let whole = matches!(target, WatchTarget::Classes(crate::model::CrdVersion::V1));
        let follow = |namespace: Option<String>| {
            let following = Watch::new(self.clone(), target.clone(), namespace);
            futures::stream::unfold(following, async |mut following| {
                Some((following.next().await, following))
            })
            .boxed()
        };
        match (own, &self.namespaces[..]) {
            (Some(own), _) => follow(Some(own)),
            (None, []) => follow(None),
            _ if whole => follow(None),
            (None, [one]) => follow(Some(one.clone())),
            (None, namespaces) => {
                let parts = namespaces.iter().map(|namespace| follow(Some(namespace.clone())));
                multi_namespace::merged(parts.collect())
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
                self.read_lease(&object_name).await.map(Response::Lease)
            }
            Request::WriteLease(object_name, lease) => self
                .write_lease(&object_name, &lease)
                .await
                .map(|lease| Response::Lease(Some(lease))),
        }
    }
}
