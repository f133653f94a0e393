//! `mainstay advise`: what containers should request, from what a Prometheus has measured: at once and
//! without a server, or as a job of a server.

mod apply;
mod datasource;
mod jobs;
mod list;
mod local;
mod shown;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::error::Result;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Reads 15 days of CPU and memory of every container, and recommends requests and limits. Nothing is
changed. The metrics are those of kube-state-metrics and cAdvisor, with the recording rules of
kubernetes-mixin.

Examples:
  mainstay advise --prometheus http://127.0.0.1:9090
  mainstay advise --prometheus http://127.0.0.1:9090 --namespace shop,payments
  mainstay advise --prometheus https://prometheus.example --token-file token --html report.html
  mainstay advise --prometheus http://127.0.0.1:9090 -o csv > containers.csv
  mainstay advise --prometheus http://127.0.0.1:9090 -o json | jq '.[].experiment_name'
  mainstay advise --prometheus http://127.0.0.1:9090 --patches patches/

As jobs of a server, which go on without you and over restarts:
  mainstay advise datasource list
  mainstay advise start --namespace shop --wait
  mainstay advise jobs"
)]
pub struct Advise {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    local: local::Local,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a job on the server
    #[command(after_help = "\
The job goes on if you do not wait for it, and if the server restarts.

Examples:
  mainstay advise start --wait
  mainstay advise start --datasource prod --namespace shop,payments --wait --html report.html
  mainstay advise start --request-id nightly-7     the same id makes one job, however often it is sent
  mainstay schedule create --name nightly --cron '0 2 * * *' --command bulk-job.create \\
      --body '{\"datasource\": \"prod\"}'")]
    Start(jobs::Start),
    /// List the server's jobs, newest first
    #[command(after_help = "\
Examples:
  mainstay advise jobs
  mainstay advise jobs -o json | jq '.[] | select(.phase == \"failed\")'")]
    Jobs(jobs::Jobs),
    /// Show one job: its progress, its notices, and what it was about
    #[command(after_help = "\
Examples:
  mainstay advise job 3d28db67-e422-4ecf-b703-6e7941d88a48
  mainstay advise job 3d28db67-e422-4ecf-b703-6e7941d88a48 --wait")]
    Job(jobs::Job),
    /// Cancel a job: what it has recommended stays
    Cancel(jobs::One),
    /// Delete a job and its results; the newest recommendations of its experiments go with them
    Delete(jobs::One),
    /// Show what the server recommends for containers, from their newest jobs
    #[command(after_help = "\
Examples:
  mainstay advise list --namespace shop
  mainstay advise list --job 3d28db67-e422-4ecf-b703-6e7941d88a48 -o csv > containers.csv
  mainstay advise list --namespace shop --patches patches/")]
    List(list::List),
    /// Data sources of your organisation
    #[command(subcommand)]
    Datasource(datasource::Verb),
    /// Apply reviewed patches to a cluster, after showing what changes
    #[command(after_help = "\
Patches are files that `--patches DIR` has written. Each is compared with the workload as it is now,
shown, and applied only after a `y`. Who owns the fields otherwise (Helm, a GitOps controller) keeps
them unless --force-conflicts is given; better change them there.

Examples:
  mainstay advise --prometheus http://127.0.0.1:9090 --namespace shop --patches patches/
  mainstay advise apply patches/ --dry-run
  mainstay advise apply patches/shop-deployment-web.yaml --context staging")]
    Apply(apply::Apply),
}

impl Advise {
    pub async fn run(self) -> Result<()> {
        match self.verb {
            None => self.local.run().await,
            Some(Verb::Start(verb)) => verb.run().await,
            Some(Verb::Jobs(verb)) => verb.run().await,
            Some(Verb::Job(verb)) => verb.run().await,
            Some(Verb::Cancel(verb)) => verb.cancel().await,
            Some(Verb::Delete(verb)) => verb.delete().await,
            Some(Verb::List(verb)) => verb.run().await,
            Some(Verb::Datasource(verb)) => verb.run().await,
            Some(Verb::Apply(verb)) => verb.run().await,
        }
    }
}

/// Which containers are meant.
#[derive(Debug, Args)]
pub struct Chosen {
    /// Only these namespaces, as in `shop,payments`
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    namespace: Vec<String>,
    /// Only these workloads
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    workload: Vec<String>,
    /// Only containers of these names
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    container: Vec<String>,
}

impl Chosen {
    /// As the filter of a bulk request.
    fn filter(&self) -> Value {
        json!({ "include": {
            "namespace": self.namespace,
            "workload": self.workload,
            "containers": self.container,
        } })
    }

    fn is_everything(&self) -> bool {
        self.namespace.is_empty() && self.workload.is_empty() && self.container.is_empty()
    }
}
