//! `cargo xtask test`: everything, from nothing. The README's test command and CI's.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use servers::{Cache, install};

use crate::cargo::Counts;
use crate::servers::{Fleet, chosen};
use crate::steps::Steps;
use crate::{Sim, cargo, suites};

/// The first whose configuration format deny.toml is written in.
const DENY_MIN: (u32, u32) = (0, 16);

/// Test programs that run at the same time. Most of their time is waiting; more than a few of them
/// would make each other's servers slow.
const AT_ONCE: usize = 2;

#[derive(Args)]
pub struct Test {
    /// Only these steps [default: all]
    #[arg(value_enum)]
    steps: Vec<Step>,
    /// How many seeds the simulator tries
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// Only with these servers, as in `kafka,postgres`: what needs another is skipped
    #[arg(long, value_delimiter = ',', conflicts_with = "no_servers", value_name = "SERVERS")]
    only: Vec<String>,
    /// A quick round without servers: what needs one is skipped
    #[arg(long)]
    no_servers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    Fmt,
    Clippy,
    Test,
    Sim,
    Deny,
}

impl Test {
    pub fn run(self) -> Result<()> {
        let mut steps = Steps::default();
        let mut counts = Counts::default();
        let done = self.steps(&mut steps, &mut counts);
        eprintln!("{}", steps.summary());
        if counts != Counts::default() {
            let Counts { passed, failed, skipped } = counts;
            println!("{passed} passed, {failed} failed, {skipped} skipped");
        }
        done
    }

    fn wants(&self, step: Step) -> bool {
        self.steps.is_empty() || self.steps.contains(&step)
    }

    fn steps(&self, steps: &mut Steps, counts: &mut Counts) -> Result<()> {
        if self.wants(Step::Fmt) {
            steps.step("format", || cargo::run(&["fmt", "--all", "--check"]))?;
        }
        if self.wants(Step::Clippy) {
            let args = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            steps.step("lints", || cargo::run(&args))?;
        }
        if self.wants(Step::Test) {
            self.test(steps, counts)?;
        }
        if self.wants(Step::Sim) {
            let sim = Sim { seeds: self.seeds, seed: None, dev: true };
            steps.step("simulator", || sim.run())?;
        }
        if self.wants(Step::Deny) {
            match cargo::version("deny") {
                Some(version) if version >= DENY_MIN => {
                    // Without advisories: their database is not always within reach.
                    let args = ["deny", "check", "licenses", "bans", "sources"];
                    steps.step("dependencies", || cargo::run(&args))?;
                }
                found => {
                    let found = found.map_or("not installed".into(), |(a, b)| format!("{a}.{b}"));
                    let (a, b) = DENY_MIN;
                    let how = "`cargo install --locked cargo-deny` gets it";
                    steps.skip(
                        "dependencies",
                        &format!("needs cargo-deny {a}.{b}, which is {found}; {how}"),
                    );
                }
            }
        }
        Ok(())
    }

    fn test(&self, steps: &mut Steps, counts: &mut Counts) -> Result<()> {
        let servers = if self.no_servers { Vec::new() } else { chosen(&self.only)? };
        let cache = Cache::of_user()?;
        steps.step("servers: install", || install(&cache, &servers))?;
        // Built before the servers run: they would have to share the machine.
        let suites = steps.step("tests: build", suites::build)?;
        let fleet = steps.step("servers: start", || Fleet::start(&servers, false))?;
        let skipped = Skipped::begin()?;
        let tested = steps.step("tests", || {
            let mut env = fleet.env()?;
            // What needs a server that is not there fails instead of being skipped.
            let names: Vec<&str> = servers.iter().map(|server| server.name).collect();
            env.push(("MAINSTAY_TEST_SERVERS".into(), names.join(",")));
            env.push(skipped.env());
            let mut out = std::io::stdout();
            let ran = suites::run(&suites, AT_ONCE, &env, &mut out, |pid| fleet.used_by(pid));
            let (counted, failed) = ran?;
            *counts = counted;
            anyhow::ensure!(failed.is_empty(), "test programs that failed: {}", failed.join(", "));
            Ok(())
        });
        steps.step("servers: stop", || fleet.stop())?;
        // To the harness they have passed.
        counts.skipped = skipped.say();
        counts.passed = counts.passed.saturating_sub(counts.skipped);
        tested
    }
}

/// Which tests were skipped for want of a server: each writes a line into a file.
struct Skipped {
    path: PathBuf,
}

impl Skipped {
    fn begin() -> Result<Skipped> {
        let path = std::env::temp_dir().join(format!("mainstay-skipped-{}", std::process::id()));
        std::fs::write(&path, "")?;
        Ok(Skipped { path })
    }

    fn env(&self) -> (String, String) {
        ("MAINSTAY_TEST_SKIPPED".into(), self.path.display().to_string())
    }

    /// Says how many for want of which, and answers how many.
    fn say(&self) -> u64 {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let _ = std::fs::remove_file(&self.path);
        let mut by_server: BTreeMap<&str, u64> = BTreeMap::new();
        text.lines().for_each(|server| *by_server.entry(server).or_default() += 1);
        let all = by_server.values().sum();
        if all > 0 {
            let each: Vec<String> =
                by_server.iter().map(|(server, count)| format!("{server} {count}")).collect();
            eprintln!("\nskipped for want of a server: {all} tests ({})", each.join(", "));
        }
        all
    }
}
