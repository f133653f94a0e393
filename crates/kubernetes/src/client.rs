//! The client of one API server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::outbound::{self, Outbound, Target, breaker};
use kernel::{Ambient, Result};
use kube::core::GroupVersionKind;
use parking_lot::Mutex;

use crate::Collection;
use crate::connect::{connect, in_cluster, kubeconfig_text};

/// The timeout of any request but a watch. The API server itself gives up after a minute, but a
/// request that took ten seconds is better sent again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The breaker of one API server. It stays open only shortly, since all callers back off already and
/// a leader has to renew its Lease soon after the server is back.
fn breaker_config() -> breaker::Config {
    breaker::Config { open_ms: 500, open_max_ms: 2_000, probe_ms: 2_000, ..Default::default() }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) kube: kube::Client,
    pub(crate) ambient: Ambient,
    pub(crate) target: Target,
    /// The discovered kinds.
    pub(crate) collections: Arc<Mutex<HashMap<GroupVersionKind, Collection>>>,
}

impl Client {
    /// Makes one attempt of each request, since controllers retry and count themselves.
    pub fn new(config: kube::Config) -> Result<Client> {
        let ambient = Ambient::system();
        let outbound =
            Outbound::new(outbound::Config::default(), ambient.clone(), Arc::new(|_| {}))?;
        let target = target(&outbound).with_attempts(1);
        Ok(Client {
            kube: connect(config)?,
            ambient,
            target: target.with_timeout(REQUEST_TIMEOUT),
            collections: Arc::default(),
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
        self.target = self.target.with_timeout(timeout);
        self
    }

    /// Sends requests by this policy: its retries, metrics and spans.
    pub fn through(mut self, outbound: &Outbound) -> Client {
        self.target = target(outbound);
        self
    }
}

fn target(outbound: &Outbound) -> Target {
    outbound.target("kubernetes").with_breaker(breaker_config())
}
