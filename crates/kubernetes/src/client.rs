//! The client of one API server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Ambient, Result};
use kube::core::GroupVersionKind;
use parking_lot::Mutex;

use crate::connect::{connect, in_cluster, kubeconfig_text};
use crate::discovery::Resource;

/// The timeout of any request but a watch. The API server itself gives up after a minute, but a
/// request that took ten seconds is better sent again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) kube: kube::Client,
    pub(crate) ambient: Ambient,
    pub(crate) timeout: Duration,
    /// The discovered kinds.
    pub(crate) resources: Arc<Mutex<HashMap<GroupVersionKind, Resource>>>,
}

impl Client {
    pub fn new(config: kube::Config) -> Result<Client> {
        Ok(Client {
            kube: connect(config)?,
            ambient: Ambient::system(),
            timeout: REQUEST_TIMEOUT,
            resources: Arc::default(),
        })
    }

    /// Connects by the text of a kubeconfig; without a context, by its current one.
    pub async fn from_kubeconfig(text: &str, context: Option<&str>) -> Result<Client> {
        Client::new(kubeconfig_text(text, context).await?)
    }

    /// Connects to the cluster that this process runs in.
    pub fn in_cluster() -> Result<Client> {
        Client::new(in_cluster()?)
    }

    /// Sets the timeout of each request.
    pub fn with_timeout(mut self, timeout: Duration) -> Client {
        self.timeout = timeout;
        self
    }
}
