//! Kubernetes API servers: what we put there, and whether it is still so.

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
