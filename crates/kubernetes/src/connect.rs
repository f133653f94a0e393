//! Finds a cluster by a kubeconfig or from within a pod, and connects with TCP keep-alive.

use std::path::Path;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kernel::{Error, Result};
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::{BoxError, ServiceBuilder};

/// The timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The TCP keep-alive time.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The cluster of a kubeconfig file; without a path, of the one that kubectl would use.
pub async fn kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Config> {
    let read = match path {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let config = match read {
        Ok(read) => with_context(read, context).await,
        Err(error) => Err(error),
    };
    config.map_err(|error| {
        let which = path.map_or("it".into(), |path| path.display().to_string());
        Error::invalid("kubeconfig", format!("{which} cannot be used: {error}"))
    })
}

/// The cluster of a kubeconfig that was read already.
pub async fn kubeconfig_text(text: &str, context: Option<&str>) -> Result<Config> {
    let config = match Kubeconfig::from_yaml(text) {
        Ok(read) => with_context(read, context).await,
        Err(error) => Err(error),
    };
    config.map_err(|error| {
        Error::unavailable("the cluster of a kubeconfig that cannot be used", error)
    })
}

/// The cluster that this process runs in.
pub fn in_cluster() -> Result<Config> {
    Config::incluster().map_err(|error| Error::unavailable("the in-cluster API server", error))
}

async fn with_context(read: Kubeconfig, context: Option<&str>) -> Result<Config, KubeconfigError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    Config::from_custom_kubeconfig(read, &options).await
}

pub(crate) fn connect(mut config: Config) -> Result<kube::Client> {
    kernel::outbound::install_tls();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Callers decide about retries and record them.
    config.default_retry = false;
    let client = match config.proxy_url {
        Some(_) => kube::Client::try_from(config),
        None => direct(config),
    };
    client.map_err(|error| Error::unavailable("the API server", error))
}

/// Builds a client like kube's, with TCP keep-alive: a watch is silent for up to a minute, and a
/// router may drop an idle connection earlier.
fn direct(config: Config) -> kube::Result<kube::Client> {
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
    Ok(kube::Client::new(service, config.default_namespace))
}
