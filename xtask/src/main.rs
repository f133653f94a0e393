//! Everything that is done to the project: `cargo xtask test | servers | bench | sim | ci`.

mod cargo;
mod servers;
mod steps;
mod suites;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use servers::{Fleet, chosen};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Everything that is done to the project")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run everything from a clean checkout: format, lints, servers, tests, simulator, dependencies
    Test(test::Test),
    /// What CI runs: the same
    Ci(test::Test),
    /// The real servers that the tests use
    #[command(subcommand)]
    Servers(servers::ServersVerb),
    /// A benchmark, as a release build, with its baseline
    Bench(Bench),
    /// The simulator, on every core
    Sim(Sim),
}

#[derive(Args)]
struct Bench {
    /// Which one, as in `kernel`
    name: String,
    /// Only this part of it, as in `transitions`
    part: Option<String>,
    /// One object per line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct Sim {
    /// How many seeds
    #[arg(long, default_value_t = 10_000)]
    pub seeds: u64,
    /// Only this one, as a failure printed it
    #[arg(long)]
    pub seed: Option<u64>,
    /// A debug build: slower to run, quicker to build
    #[arg(long)]
    pub dev: bool,
}

/// A parent that ignores SIGINT (a script in the background) passes that on, and nothing could
/// interrupt a run: this restores what each signal does by default.
fn end_on_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(())
}

fn main() -> ExitCode {
    let done = end_on_signals().and_then(|()| Cli::parse().run());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    fn run(self) -> Result<()> {
        match self.verb {
            Verb::Test(test) | Verb::Ci(test) => test.run(),
            Verb::Servers(verb) => verb.run(),
            Verb::Bench(bench) => bench.run(),
            Verb::Sim(sim) => sim.run(),
        }
    }
}

impl Bench {
    /// Data is safe on disk in the servers too: a benchmark must not cheat.
    fn run(self) -> Result<()> {
        cargo::run(&["build", "--release", "-p", "mainstay", "-p", "benches", "-p", "e2e"])?;
        let servers = match self.name.as_str() {
            "streams" => vec!["kubernetes".to_owned()],
            "bus" => vec!["kafka".to_owned(), "rabbitmq".to_owned()],
            "advisor" => vec!["kafka".to_owned(), "prometheus".to_owned()],
            _ => vec!["postgres".to_owned()],
        };
        let fleet = Fleet::start(&chosen(&servers)?, true)?;
        let mut env = fleet.env()?;
        let binary =
            |name: &str| cargo::target_dir().join("release").join(name).display().to_string();
        env.push(("MAINSTAY_BIN".into(), binary("mainstay")));
        env.push(("MAINSTAY_E2E_BIN".into(), binary("e2e")));
        // The program itself: cargo would build it again, with the features of it alone.
        let mut bench = std::process::Command::new(binary("benches"));
        bench.arg(&self.name).args(&self.part).args(self.json.then_some("--json"));
        let status = bench.envs(env).status();
        let ran = status.map_err(anyhow::Error::from).and_then(|status| {
            anyhow::ensure!(status.success(), "`benches {}` failed ({status})", self.name);
            Ok(())
        });
        fleet.stop()?;
        ran
    }
}

impl Sim {
    pub fn run(self) -> Result<()> {
        let (seeds, seed) = (self.seeds.to_string(), self.seed.map(|seed| seed.to_string()));
        let mut args = vec!["run", "--quiet", "-p", "testkit", "--bin", "sim"];
        args.extend((!self.dev).then_some("--release"));
        args.push("--");
        match &seed {
            Some(seed) => args.extend(["--seed", seed]),
            None => args.extend(["--seeds", seeds.as_str()]),
        }
        cargo::run(&args)
    }
}
