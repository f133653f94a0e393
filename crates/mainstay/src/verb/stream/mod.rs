//! `mainstay stream …`: the streams of a Kubernetes cluster. Speaks with the cluster itself and
//! needs no server.

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
A stream is named by NAME, or by KIND/NAME or CLASS/NAME where several have the name:
  mainstay stream list -A
  mainstay stream describe orders -n prod      why it does not run, and what would change it
  mainstay stream restart ParquetStream/orders --wait
  mainstay stream backfill orders --wait
  mainstay stream downtime declare db-move --prefix sales-

These verbs speak with the cluster of your kubeconfig, as kubectl does; no server is needed.")]
pub enum Verb {
    /// List streams
    List(list::List),
    /// Show a stream
    Get(show::One),
    /// Explain a stream: why it does not run, since when, and what would change it
    Describe(show::One),
    /// Let a stream run
    Start(change::Change),
    /// Suspend a stream: its Job ends
    Stop(change::Change),
    /// Start a stream's Job anew; also one that has failed
    Restart(change::Change),
    /// Ask for all data of a stream anew
    Backfill(backfill::Backfill),
    /// Show what a stream's container writes
    Logs(logs::Logs),
    /// Suspend many streams together, and let the same ones go on later
    #[command(subcommand)]
    Downtime(downtime::Verb),
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::List(verb) => verb.run().await,
            Verb::Get(verb) => verb.get().await,
            Verb::Describe(verb) => verb.describe().await,
            Verb::Start(verb) => verb.run(change::Wish::Start).await,
            Verb::Stop(verb) => verb.run(change::Wish::Stop).await,
            Verb::Restart(verb) => verb.run(change::Wish::Restart).await,
            Verb::Backfill(verb) => verb.run().await,
            Verb::Logs(verb) => verb.run().await,
            Verb::Downtime(verb) => verb.run().await,
        }
    }
}

/// Which cluster, and where in it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// A kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the cluster around us]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The namespace [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// In all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// How to print it
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

/// How a stream is spoken of.
fn called(found: &FoundStream) -> String {
    format!("{}/{}", found.class.kind, found.object_name().name)
}
