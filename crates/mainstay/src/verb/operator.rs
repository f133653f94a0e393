//! `mainstay operator`: runs the stream definitions of a cluster as Jobs and keeps them running.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kernel::Ambient;
use kernel::outbound::{self, Outbound};
use streams::config::Config;
use streams::controller::Operator as Running;
use streams::ports::kubernetes::connect;
use streams::reporting::reporter::Reporter;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::cli::key_value;
use crate::error::Result;
use crate::output::{program, say};
use crate::server::signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mainstay crds | kubectl apply --server-side -f -      once, before the first start
  mainstay operator                                     in a cluster, or with your kubeconfig
  mainstay operator --context staging --namespace team-a --namespace team-b
  mainstay operator --set operator.backfills-max=10 --set recovery.attempts=3
  mainstay operator --connect https://mainstay.example --connect-token-file /etc/mainstay/token

One of several replicas is the leader: it holds the Lease mainstay-operator and acts. The others watch,
and one of them takes over within seconds. An installation of the existing operator is taken over as it
is: its appconfig.yaml and its variables (ARCANE_OPERATOR__TELEMETRY__LOG_LEVEL) are read, and no
running Job is restarted.

Settings in appconfig.yaml, in variables and with --set, in addition to those of the existing operator:
  operator.workers=16               streams that are reconciled concurrently
  operator.namespaces=a,b           watched namespaces; empty for all
  operator.backfills-max=0          concurrent backfills; 0 means no limit
  operator.requests-kept=10         completed BackfillRequests kept for each stream
  operator.restarts-per-minute=0    Jobs restarted after changes; 0 means no limit
  operator.other-quiet=1m           how long another operator must be silent before its
                                    streams are taken over
  recovery.first=30s, recovery.longest=30m, recovery.attempts=7, recovery.stable=10m
                                    for streams that are restarted after a failure
                                    (annotation mainstay.io/recover)
  lease.enabled, lease.namespace, lease.name, lease.duration, lease.renew-deadline,
  lease.retry-period                leader election
  telemetry.legacy-metrics=true     also export metrics under the names of the existing operator

The service account needs the permissions in deploy/helm/mainstay-operator. The first Ctrl-C (or
SIGTERM) finishes running work and releases the Lease.")]
pub struct Operator {
    /// Path of a kubeconfig [default: the in-cluster configuration, $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Path of appconfig.yaml or of its directory
    #[arg(long, value_name = "PATH", default_value = ".")]
    config: PathBuf,
    /// A setting, as in operator.workers=32; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Watch only this namespace; may be repeated
    #[arg(long = "namespace", short, value_name = "NAME")]
    namespaces: Vec<String>,
    /// Run without leader election, as the only replica
    #[arg(long)]
    no_lease: bool,
    /// Address of health probes, as in :8888; empty for none
    #[arg(long, value_name = "ADDR")]
    probes_addr: Option<String>,
    /// Address of metrics, as in :9090; empty for none
    #[arg(long, value_name = "ADDR")]
    metrics_addr: Option<String>,
    /// Report the streams to this Mainstay server
    #[arg(long, value_name = "URL", requires = "connect_token_file", env = "MAINSTAY_CONNECT")]
    connect: Option<Url>,
    /// File with a token of `mainstay token --agent-of CLUSTER`; read for each report
    #[arg(long, value_name = "FILE", env = "MAINSTAY_CONNECT_TOKEN_FILE")]
    connect_token_file: Option<PathBuf>,
}

/// The interval of checks whether this replica leads.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl Operator {
    pub async fn run(self) -> Result<()> {
        let config = self.settings()?;
        let logs =
            kernel::telemetry::Config { level: level(&config.log_level), ..Default::default() };
        let _telemetry = kernel::telemetry::init(&logs)?;
        let cluster = connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        let cluster = cluster.within(&config.namespaces);
        say(&self.greeting(&config));
        let operator = Running::new(Arc::new(cluster), config, Ambient::system());
        let stop = CancellationToken::new();
        let companions = async {
            tokio::join!(self.report(&operator, stop.clone()), print_leadership(&operator, &stop)).0
        };
        let run = operator.clone().run(stop.clone());
        tokio::select! {
            ended = async { tokio::try_join!(async { Ok(run.await?) }, companions) } => ended.map(drop),
            forced = signals(&stop, || (), "the Lease expires by itself") => forced,
        }
    }

    /// Flags override variables, and variables override the file.
    fn settings(&self) -> Result<Config> {
        if !self.config.exists() {
            let what = format!("{} does not exist", self.config.display());
            return Err(kernel::Error::invalid("config", what).into());
        }
        let mut variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let flags = self.set.iter().cloned().chain(self.named());
        for (key, value) in flags {
            let name = key.to_uppercase().replace('.', "__").replace('-', "_");
            variables.push((format!("ARCANE_OPERATOR__{name}"), value));
        }
        Ok(Config::from(&self.config, variables)?)
    }

    fn named(&self) -> impl Iterator<Item = (String, String)> {
        let namespaces = (!self.namespaces.is_empty()).then(|| self.namespaces.join(","));
        let named = [
            ("operator.namespaces", namespaces),
            ("lease.enabled", self.no_lease.then(|| "false".into())),
            ("probes.addr", self.probes_addr.clone()),
            ("telemetry.metrics-bind-address", self.metrics_addr.clone()),
        ];
        named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)))
    }

    fn greeting(&self, config: &Config) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let watches = match &config.namespaces[..] {
            [] => "all namespaces".to_owned(),
            some => format!("the namespaces {}", some.join(", ")),
        };
        let url = |addr: &str, path: &str| match addr {
            "" => "off".to_owned(),
            addr if addr.starts_with(':') => format!("http://127.0.0.1{addr}{path}"),
            addr => format!("http://{addr}{path}"),
        };
        let lease = if config.lease.enabled {
            format!(
                "if it holds the Lease {}, on {} streams at a time",
                config.lease.name, config.workers
            )
        } else {
            format!(
                "without a Lease (it must be the only replica), on {} streams at a time",
                config.workers
            )
        };
        let server = match &self.connect {
            Some(url) => format!("\n  reports  to {url}"),
            None => String::new(),
        };
        let health = url(&config.probes_addr, "/health/ready");
        let metrics = url(&config.metrics_addr, "/metrics");
        format!(
            "\
Mainstay {version}, operator of streams
  watches  {watches}
  acts     {lease}
  health   {health}
  metrics  {metrics}{server}
"
        )
    }

    async fn report(&self, operator: &Arc<Running>, stop: CancellationToken) -> Result<()> {
        let (Some(url), Some(token)) = (&self.connect, &self.connect_token_file) else {
            return Ok(());
        };
        let unwatched: outbound::Observe = Arc::new(|_| {});
        let outbound = Outbound::new(Default::default(), Ambient::system(), unwatched)?;
        let connect = Reporter::new(url, token.clone(), operator.namespaces(), &outbound)?;
        let acts = || operator.is_leading() && operator.is_ready();
        connect.run(operator.index(), acts, stop).await;
        Ok(())
    }
}

/// Maps the level names of the existing operator to ours.
fn level(name: &str) -> String {
    match name.to_lowercase().as_str() {
        "information" => "info".into(),
        "warning" => "warn".into(),
        "fatal" | "critical" => "error".into(),
        other => other.into(),
    }
}

/// Prints when the operator is ready, and whether it leads.
async fn print_leadership(operator: &Arc<Running>, stop: &CancellationToken) {
    let mut printed = None;
    while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
        let now = operator.is_ready().then(|| operator.is_leading());
        if now == printed || now.is_none() {
            continue;
        }
        let (classes, streams) = {
            let index = operator.index().lock();
            (index.classes().count(), index.streams().count())
        };
        let does = match now {
            Some(true) => "this replica leads",
            _ => "standing by, another replica leads",
        };
        say(&format!("ready: {streams} streams of {classes} classes; {does}"));
        if classes == 0 {
            let me = program();
            say(&format!(
                "no StreamClass yet: apply a plugin's; if the cluster does not know the kind, \
                 `{me} crds | kubectl apply --server-side -f -` first"
            ));
        }
        printed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        operator: Operator,
    }

    fn settings(args: &[&str]) -> Result<Config> {
        let args = std::iter::once("operator").chain(args.iter().copied());
        Alone::try_parse_from(args).unwrap().operator.settings()
    }

    #[test]
    fn flags_override_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.yaml");
        std::fs::write(&file, "operator: {workers: 3, backfills-max: 4}").unwrap();
        let file = file.to_str().unwrap();
        let config =
            settings(&["--config", file, "--set", "operator.workers=5", "-n", "a", "-n", "b"]);
        let config = config.unwrap();
        assert_eq!((config.workers, config.settings.backfills_max), (5, Some(4)));
        assert_eq!(config.namespaces, ["a", "b"]);
        assert!(config.lease.enabled);
        let alone = settings(&["--no-lease", "--probes-addr", "", "--metrics-addr", ":1"]).unwrap();
        assert_eq!((alone.lease.enabled, alone.metrics_addr.as_str()), (false, ":1"));
        assert_eq!(alone.probes_addr, "");
        assert!(settings(&["--config", "/no/such/dir"]).is_err());
        assert!(settings(&["--set", "operator.wrokers=1"]).is_err());
    }
}
