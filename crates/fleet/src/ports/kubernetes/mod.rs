//! Kubernetes clusters: the objects that we apply there, and their drift.

pub mod agent_manifests;
mod drift;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use ::kubernetes::{Client as KubeClient, ObjectRef, covers};
pub use agent_manifests::AgentManifests;
pub use drift::DriftWatcher;

/// The timeout of one request: admission webhooks may take ten seconds each.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Has a context for each standalone cluster, of the cluster's name.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the agent on each cluster.
    pub namespace: String,
    /// The image of the agent: this program.
    pub image: String,
    /// A `.dockerconfigjson`, if the image is not public.
    pub pull_secret_file: Option<PathBuf>,
    /// The URL of this server for the clusters. Empty: the public one.
    pub control_plane_url: String,
    /// How often a cluster's objects are compared with the desired ones, besides being watched.
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
