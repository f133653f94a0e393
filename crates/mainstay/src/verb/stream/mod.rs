//! `mainstay stream …`: manages the streams of a Kubernetes cluster through its API server.

mod backfill;
mod change;
mod downtime;
mod list;
mod logs;
mod show;
mod wait;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use streams::kubectl::Client;
use streams::kubectl::find::{FoundStream, Scope};

use crate::error::Result;
use crate::output::Format;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
A stream is given as NAME, or as KIND/NAME or CLASS/NAME if the name is ambiguous:
  mainstay stream list -A
  mainstay stream describe orders -n prod      why it does not run, and how to fix it
  mainstay stream restart ParquetStream/orders --wait
  mainstay stream backfill orders --wait
  mainstay stream downtime declare db-move --prefix sales-

These verbs use the cluster of your kubeconfig, as kubectl does; no Mainstay server is needed.")]
pub enum Verb {
    /// List streams
    List(list::List),
    /// Show a stream
    Get(show::One),
    /// Explain a stream: why it does not run, since when, and how to fix it
    Describe(show::One),
    /// Resume a stream
    Start(change::ChangeArgs),
    /// Suspend a stream and stop its Job
    Stop(change::ChangeArgs),
    /// Restart a stream's Job; also that of a failed stream
    Restart(change::ChangeArgs),
    /// Request a backfill: load all data of a stream again
    Backfill(backfill::Backfill),
    /// Show the logs of a stream's container
    Logs(logs::Logs),
    /// Suspend many streams together, and resume the same ones later
    #[command(subcommand)]
    Downtime(downtime::Verb),
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::List(verb) => verb.run().await,
            Verb::Get(verb) => verb.get().await,
            Verb::Describe(verb) => verb.describe().await,
            Verb::Start(verb) => verb.run(change::Change::Start).await,
            Verb::Stop(verb) => verb.run(change::Change::Stop).await,
            Verb::Restart(verb) => verb.run(change::Change::Restart).await,
            Verb::Backfill(verb) => verb.run().await,
            Verb::Logs(verb) => verb.run().await,
            Verb::Downtime(verb) => verb.run().await,
        }
    }
}

/// Selects the cluster and the namespace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Path of a kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the in-cluster configuration]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// All namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl ClusterArgs {
    async fn open(&self) -> Result<(Client, Scope)> {
        let client = Client::connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        let scope = match (&self.namespace, self.all_namespaces) {
            (_, true) => Scope::Everywhere,
            (Some(name), false) => Scope::Namespace(name.clone()),
            (None, false) => Scope::Namespace(client.namespace.clone()),
        };
        Ok((client, scope))
    }

    async fn find(&self, name: &str) -> Result<(Client, FoundStream)> {
        let (client, scope) = self.open().await?;
        let found = client.stream(&scope, name).await?;
        Ok((client, found))
    }
}

/// `KIND/NAME`, as messages name a stream.
fn display_name(found: &FoundStream) -> String {
    format!("{}/{}", found.class.kind, found.object_name().name)
}
