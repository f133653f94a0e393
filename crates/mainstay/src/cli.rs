//! The verbs of the command line, and where each is implemented.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use kernel::Domain;

use crate::config::{self, Loaded, Origin, Setting, Sources};
use crate::error::{Error, Result};
use crate::{server, verb};

const ABOUT: &str =
    "One control plane for managed services, environments, streams and right-sizing";

const EXAMPLES: &str = "\
The same binary is the server and its client. Data goes to stdout, messages to stderr.

Examples:
  mainstay server                        run a server here, with nothing else installed
  mainstay kafka create --name demo --wait
  mainstay kafka describe demo           its progress, and what it waits for
  mainstay stream describe orders        why a stream does not run, and what would change it
  mainstay list widget --label team=core
  mainstay get widget/ID --wait-phase ready
  mainstay events --follow -o json       one CloudEvent per line
  mainstay work --failing                what fails, and why
  mainstay bus status                    how far the brokers and webhooks are behind
  mainstay advise --prometheus http://127.0.0.1:9090      what containers should request
  mainstay audit verify                  has the audit log been changed?

Exit codes: 0 done, 1 damaged data or a bug, 2 invalid, 3 not signed in, 4 not allowed,
5 not found, 6 conflict, 7 transient (try again).";

#[derive(Debug, Parser)]
#[command(name = "mainstay", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the server: API, workers and event feed in one process
    #[command(after_help = "\
Examples:
  mainstay server
  mainstay server --listen 0.0.0.0:8080 --data-dir /var/lib/mainstay
  mainstay server --database postgres://mainstay@db/mainstay      any number of these share the work
  mainstay server --set driver.slots=128 --set http.body_bytes_max=1000000

The first Ctrl-C (or SIGTERM) finishes requests and attempts in flight, a second one stops at once.")]
    Server(ConfigArgs),
    /// Migrate the database to this version's tables
    Migrate(verb::migrate::Migrate),
    /// Copy the store and the keys into a directory, while the server runs
    Backup(verb::backup::Backup),
    /// Restore what `backup` wrote into an empty data directory or database
    Restore(verb::backup::Restore),
    /// Make a token with the signing key in the data directory
    Token(verb::token::Token),
    /// Sign in to a server and remember it
    Login(verb::login::Login),
    /// End the session, and remove the server and its tokens from the contexts
    Logout(verb::login::Logout),
    /// Show the known servers, or switch to another
    Context(verb::login::ContextVerb),
    /// Show or check the configuration
    #[command(subcommand)]
    Config(verb::config::ConfigVerb),
    /// Managed Kafkas
    #[command(subcommand)]
    Kafka(verb::instance::Verb),
    /// Managed Dinosaurs
    #[command(subcommand)]
    Dinosaur(verb::instance::Verb),
    /// Clients for an organisation's programs
    #[command(subcommand)]
    ServiceAccount(verb::account::Verb),
    /// The data planes that instances run on
    #[command(subcommand)]
    Cluster(verb::cluster::Verb),
    /// Open the API's documentation in a browser
    Docs(verb::docs::Docs),
    /// Show an object, or wait until it has reached a state
    Get(verb::get::Get),
    /// List objects of a kind
    List(verb::list::List),
    /// Search everything you may see
    Search(verb::list::Search),
    /// Show what happened, or follow it live
    Events(verb::events::Events),
    /// Show the audit log, or verify it
    Audit(verb::audit::Audit),
    /// Show the queue: what is due, running, retrying, stopped and why
    Work(verb::work::Work),
    /// Commands that are carried out at certain times
    #[command(subcommand)]
    Schedule(verb::schedule::Verb),
    /// The bus: where events go, how far they are, and how a command went
    #[command(subcommand)]
    Bus(verb::bus::Verb),
    /// Recommend what containers should request, from what a Prometheus has measured
    Advise(Box<verb::advise::Advise>),
    /// The streams of a Kubernetes cluster; needs no server
    #[command(subcommand)]
    Stream(verb::stream::Verb),
    /// Turn the stream definitions of a Kubernetes cluster into Jobs and keep them running
    Operator(verb::operator::Operator),
    /// Print the definitions (CRDs) that streams need in a cluster
    Crds(verb::crds::Crds),
    /// Run the agent of a Kubernetes cluster: apply the desired instances there, and report
    Agent(verb::agent::Agent),
    /// Run one instance of a managed service; the local data plane calls it
    #[command(subcommand, hide = true)]
    Plane(verb::plane::Plane),
    /// Run a program that does not outlive its lease; the server calls it
    #[command(hide = true)]
    Leash(verb::leash::Leash),
    /// Print the completions of a shell
    Completions(verb::shell::Completions),
    /// Print the manual page, or write all of them
    Man(verb::shell::Man),
    /// Print the version
    Version,
    /// The same verbs as `kafka` for any kind that the server's files declare
    #[command(external_subcommand)]
    Kind(Vec<String>),
}

/// The whole command, for completions, manual pages and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

impl Cli {
    pub fn run(self, domains: Vec<Box<dyn Domain>>) -> Result<()> {
        match self.verb {
            Verb::Server(args) => many_threads(server::run(args.load()?, domains)),
            Verb::Migrate(verb) => many_threads(verb.run()),
            Verb::Backup(verb) => many_threads(verb.run()),
            Verb::Restore(verb) => many_threads(verb.run()),
            Verb::Token(verb) => verb.run(),
            Verb::Login(verb) => one_thread(verb.run()),
            Verb::Logout(verb) => one_thread(verb.run()),
            Verb::Context(verb) => verb.run(),
            Verb::Config(verb) => verb.run(),
            Verb::Kafka(verb) => one_thread(verb.run("kafka")),
            Verb::Dinosaur(verb) => one_thread(verb.run("dinosaur")),
            Verb::ServiceAccount(verb) => one_thread(verb.run()),
            Verb::Cluster(verb) => one_thread(verb.run()),
            Verb::Docs(verb) => verb.run(),
            Verb::Kind(words) => of_kind(words),
            Verb::Get(verb) => one_thread(verb.run()),
            Verb::List(verb) => one_thread(verb.run()),
            Verb::Search(verb) => one_thread(verb.run()),
            Verb::Events(verb) => one_thread(verb.run()),
            Verb::Audit(verb) => one_thread(verb.run()),
            Verb::Work(verb) => one_thread(verb.run()),
            Verb::Schedule(verb) => one_thread(verb.run()),
            Verb::Bus(verb) => one_thread(verb.run()),
            Verb::Advise(verb) => many_threads(verb.run()),
            Verb::Stream(verb) => one_thread(verb.run()),
            Verb::Operator(verb) => many_threads(verb.run()),
            Verb::Crds(verb) => verb.run(),
            Verb::Agent(verb) => many_threads(verb.run()),
            Verb::Plane(verb) => many_threads(verb.run()),
            Verb::Leash(verb) => one_thread(verb.run()),
            Verb::Completions(verb) => verb.run(),
            Verb::Man(verb) => verb.run(),
            Verb::Version => {
                use kernel::telemetry::build::{REVISION, VERSION};
                crate::output::print(&format!("mainstay {VERSION} (revision {REVISION})"))
            }
        }
    }
}

/// `mainstay KIND …`, for a kind that this program was not built with.
fn of_kind(words: Vec<String>) -> Result<()> {
    #[derive(Debug, Parser)]
    #[command(name = "mainstay")]
    struct OfKind {
        #[command(subcommand)]
        verb: verb::instance::Verb,
    }
    let Some(kind) = words.first().cloned() else { return Ok(()) };
    let looks_like_kind =
        kind.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit());
    if !looks_like_kind || words.len() < 2 {
        // The usual message, with a suggestion.
        let error = Cli::command().error(
            clap::error::ErrorKind::InvalidSubcommand,
            format!("unrecognized subcommand '{kind}'; `mainstay --help` lists them, and `mainstay {kind} list` asks the server for a kind of that name"),
        );
        error.exit();
    }
    let parsed = OfKind::parse_from(
        std::iter::once(format!("mainstay {kind}")).chain(words.into_iter().skip(1)),
    );
    one_thread(parsed.verb.run(&kind))
}

fn one_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    block_on(tokio::runtime::Builder::new_current_thread(), work)
}

fn many_threads(work: impl Future<Output = Result<()>>) -> Result<()> {
    block_on(tokio::runtime::Builder::new_multi_thread(), work)
}

fn block_on(
    mut builder: tokio::runtime::Builder,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|e| Error::file("the process cannot start its threads", e))?.block_on(work)
}

/// Where the configuration comes from, and the values given most often.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Configuration")]
pub struct ConfigArgs {
    /// A TOML file [default: $XDG_CONFIG_HOME/mainstay/config.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "MAINSTAY_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Where the server listens
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where the data is
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// A PostgreSQL URL; without one, SQLite in the data directory
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Any other value, as in driver.slots=128
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

impl ConfigArgs {
    pub fn load(&self) -> Result<Loaded> {
        let flag = |path: &str, text: &String, flag: &str| Setting {
            path: path.split('.').map(str::to_owned).collect(),
            text: text.clone(),
            origin: Origin::Flag(flag.into()),
        };
        let set = self.set.iter().map(|(path, text)| flag(path, text, &format!("--set {path}")));
        let named = [
            ("listen", &self.listen, "--listen"),
            ("data_dir", &self.data_dir, "--data-dir"),
            ("database", &self.database, "--database"),
        ];
        let named =
            named.iter().filter_map(|(path, text, name)| Some(flag(path, text.as_ref()?, name)));
        let flags = set.chain(named).collect();
        Ok(config::load(&Sources::of_process(self.config.clone(), flags))?)
    }
}

/// Reads `KEY=VALUE`.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("must be KEY=VALUE".into()),
    }
}

/// Reads `90s`, `15m`, `8h`, `30d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let span = text.parse::<jiff::Span>().map_err(|_| "must be like 90s, 15m, 8h or 30d")?;
    let long = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours());
    long.ok()
        .and_then(|long| Duration::try_from(long).ok())
        .ok_or_else(|| "must not be negative".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("8h", 28_800), ("30d", 2_592_000)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for bad in ["", "soon", "5", "-3s"] {
            assert!(duration(bad).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn help_reads_well() {
        let mut all = String::new();
        fn write(command: &mut clap::Command, path: &str, all: &mut String) {
            let path = format!("{path} {}", command.get_name()).trim().to_owned();
            all.push_str(&format!("=== {path}\n{}\n", command.render_help()));
            for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
                write(inner, &path, all);
            }
        }
        let mut command = command().term_width(100);
        command.build();
        write(&mut command, "", &mut all);
        insta::assert_snapshot!("help", all);
    }
}
