//! Runs cargo in the workspace.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// The checkout. Asked at run time: a cached build of this program may serve another checkout.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.and_then(|dir| dir.parent().map(PathBuf::from)).unwrap_or_else(|| ".".into())
}

pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    command
}

pub fn run(args: &[&str], env: &[(String, String)]) -> Result<()> {
    let shown = show(args);
    let status = with(args, env).status().with_context(|| format!("{shown} cannot start"))?;
    ended(&shown, status)
}

/// How many tests there were.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    /// For want of a server; the harness knows nothing of it.
    pub skipped: u64,
}

impl Counts {
    /// Adds what a line such as `test result: ok. 7 passed; 0 failed; …` says; others say nothing.
    fn add(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result: ") else { return };
        let mut words = result.split([' ', ';']).filter(|word| !word.is_empty());
        let mut before = words.next();
        for word in words {
            let count = before.and_then(|count| count.parse().ok()).unwrap_or(0);
            match word {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                _ => {}
            }
            before = Some(word);
        }
    }
}

/// Runs tests: what they print is passed on, and their results are added to `counts`. `begun`
/// gets the process id.
pub fn test(
    args: &[&str],
    env: &[(String, String)],
    counts: &mut Counts,
    begun: impl FnOnce(u32) -> Result<()>,
) -> Result<()> {
    let shown = show(args);
    let child = with(args, env).stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("{shown} cannot start"))?;
    begun(child.id())?;
    let said = child.stdout.take().context("the tests have no stdout")?;
    // Bytes: what a test prints need not be text.
    for line in BufReader::new(said).split(b'\n') {
        let line = line?;
        counts.add(&String::from_utf8_lossy(&line));
        let mut out = std::io::stdout().lock();
        out.write_all(&line).and_then(|()| out.write_all(b"\n"))?;
    }
    ended(&shown, child.wait()?)
}

fn show(args: &[&str]) -> String {
    let shown = format!("cargo {}", args.join(" "));
    eprintln!("$ {shown}");
    shown
}

fn with(args: &[&str], env: &[(String, String)]) -> Command {
    let mut command = command(args);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    command
}

fn ended(shown: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// The version of a subcommand of cargo's, if it is installed.
pub fn version(subcommand: &str) -> Option<(u32, u32)> {
    let output = command(&[subcommand, "--version"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.split_whitespace().next_back()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_all_tests_are_added_up() {
        let mut counts = Counts::default();
        let lines = [
            "running 3 tests",
            "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 46 filtered out; finished in 0.16s",
            "test a_test ... ok",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        lines.iter().for_each(|line| counts.add(line));
        assert_eq!(counts, Counts { passed: 17, failed: 2, skipped: 0 });
    }
}
