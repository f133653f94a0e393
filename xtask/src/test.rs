//! `cargo xtask test`: everything, from nothing. The README's test command and CI's.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cargo::Counts;
use crate::servers::{Durability, Fleet};
use crate::steps::Steps;
use crate::{Sim, cargo};

/// The first whose configuration format deny.toml is written in.
const DENY_MIN: (u32, u32) = (0, 16);

#[derive(Args)]
pub struct Test {
    /// Only these steps [default: all]
    #[arg(value_enum)]
    only: Vec<Step>,
    /// How many seeds the simulator tries
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
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
            println!("{} passed, {} failed", counts.passed, counts.failed);
        }
        done
    }

    fn wants(&self, step: Step) -> bool {
        self.only.is_empty() || self.only.contains(&step)
    }

    fn steps(&self, steps: &mut Steps, counts: &mut Counts) -> Result<()> {
        if self.wants(Step::Fmt) {
            steps.step("format", || cargo::run(&["fmt", "--all", "--check"], &[]))?;
        }
        if self.wants(Step::Clippy) {
            let args = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            steps.step("lints", || cargo::run(&args, &[]))?;
        }
        if self.wants(Step::Test) {
            let fleet = steps.step("servers", || Fleet::start(Durability::None))?;
            let tested = steps.step("tests", || {
                let mut env = fleet.env();
                // What needs a server that is not there fails instead of being skipped.
                env.push(("MAINSTAY_TEST_SERVERS".into(), "required".into()));
                cargo::test(&["test", "--workspace", "--no-fail-fast"], &env, counts)
            });
            steps.step("servers stop", || fleet.stop())?;
            tested?;
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
                    steps.step("dependencies", || cargo::run(&args, &[]))?;
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
}
