//! `mainstay agent`: the data plane of a Kubernetes cluster.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use fleet::dataplane::agent::{Settings, run};
use fleet::ports::kubernetes::KubeClient;
use kernel::Ambient;
use kernel::outbound::{self, Outbound};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::server::signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mainstay agent --parameters /etc/mainstay/agent             in the cluster that it serves
  mainstay agent --parameters DIR --kubeconfig FILE           from outside

The directory has a file for each of control-plane-url, cluster-id, sso-auth-server-url,
sso-client-id and sso-secret, and may have poll-interval, resync-interval and offers. A parameter
without a file is read from the environment, as in MAINSTAY_AGENT_CLUSTER_ID.")]
pub struct Agent {
    /// A directory with a file for each parameter
    #[arg(long, value_name = "DIR")]
    parameters: Option<PathBuf>,
    /// The kubeconfig of the cluster; default: the cluster that the agent runs in
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", hide_env_values = true)]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Agent {
    pub async fn run(self) -> Result<()> {
        let _telemetry = kernel::telemetry::init(&Default::default())?;
        let settings = Settings::from_values(|name| {
            let file = self.parameters.as_ref().map(|dir| dir.join(name));
            let variable = format!("MAINSTAY_AGENT_{}", name.replace('-', "_").to_uppercase());
            let text = file.and_then(|file| std::fs::read_to_string(file).ok());
            text.or_else(|| std::env::var(variable).ok())
        })?;
        let cluster = match &self.kubeconfig {
            None => KubeClient::in_cluster()?,
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|e| Error::file(format!("{} cannot be read", file.display()), e))?;
                KubeClient::from_kubeconfig(&text, self.context.as_deref()).await?
            }
        };
        let ignored: outbound::Observe = Arc::new(|_| {});
        let outbound = Outbound::new(Default::default(), Ambient::system(), ignored)?;
        let stop = CancellationToken::new();
        tokio::select! {
            ended = run(settings, cluster, &outbound, stop.clone()) => Ok(ended?),
            forced = signals(&stop, || (), "instances keep running") => forced,
        }
    }
}
