//! The Kubernetes cluster that this server runs in, for the lists that the existing service's pages
//! offer to choose from.

use std::path::Path;
use std::time::Duration;

use kernel::outbound::Outbound;
use kernel::{Error, Result};
use kubernetes::{Client, Collection, HttpRequest};
use serde::Deserialize;

const TIMEOUT: Duration = Duration::from_secs(5);
/// A page offers no more to choose from.
const NAMES_MAX: usize = 5_000;

/// A cluster, if there is one.
pub struct Cluster(Option<Client>);

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

impl Cluster {
    /// The cluster of a kubeconfig, or the one around this pod.
    pub async fn connect(kubeconfig: Option<&Path>, outbound: &Outbound) -> Result<Cluster> {
        let client = match kubeconfig {
            Some(path) => Some(Client::new(kubernetes::kubeconfig(Some(path), None).await?)?),
            None => Client::in_cluster().ok(),
        };
        Ok(Cluster(client.map(|client| client.through(outbound).with_timeout(TIMEOUT))))
    }

    pub async fn namespaces(&self) -> Result<Option<Vec<String>>> {
        self.names(&Collection::new("", "v1", "namespaces"), None).await
    }

    /// Workloads of a kind, such as `deployments`, in a namespace.
    pub async fn workloads(&self, plural: &str, namespace: &str) -> Result<Option<Vec<String>>> {
        self.names(&Collection::new("apps", "v1", plural), Some(namespace)).await
    }

    /// None without a cluster.
    async fn names(
        &self,
        collection: &Collection,
        namespace: Option<&str>,
    ) -> Result<Option<Vec<String>>> {
        let Some(client) = &self.0 else { return Ok(None) };
        let path = format!("{}?limit={NAMES_MAX}", collection.path(namespace));
        let answer = client.send(HttpRequest::list(path, true)).await;
        let answer = answer.map_err(|error| Error::unavailable("Kubernetes", error))?;
        let list: List = serde_json::from_slice(&answer)
            .map_err(|error| Error::unavailable("Kubernetes", error))?;
        let mut names: Vec<String> =
            list.items.into_iter().map(|item| item.metadata.name).collect();
        names.sort();
        Ok(Some(names))
    }
}
