//! Runs cargo in the workspace.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// The checkout. Asked at run time: a cached build of this program may serve another checkout.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.and_then(|dir| dir.parent().map(PathBuf::from)).unwrap_or_else(|| ".".into())
}

pub fn target_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        return dir.into();
    }
    // A setting of cargo's may name another: this program is in it, below a directory per profile.
    let program = std::env::current_exe().ok();
    let dir = program.as_deref().and_then(|program| program.parent()?.parent());
    dir.map_or_else(|| root().join("target"), PathBuf::from)
}

fn command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    // What cargo has set for this program is not for the build: some build scripts run again, with
    // all that depends on them, when it differs from that of a cargo in the terminal.
    for (name, _) in std::env::vars_os() {
        if is_of_this_package(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command
}

fn is_of_this_package(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
}

pub fn run(args: &[&str]) -> Result<()> {
    let shown = show(args);
    let status = command(args).status().with_context(|| format!("{shown} cannot start"))?;
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
    pub fn add(&mut self, line: &str) {
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

/// What cargo prints; its errors go to the terminal.
pub fn output(args: &[&str]) -> Result<String> {
    let shown = show(args);
    let output = command(args).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{shown} cannot start"))?;
    ended(&shown, output.status)?;
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed no text"))
}

fn show(args: &[&str]) -> String {
    let shown = format!("cargo {}", args.join(" "));
    eprintln!("$ {shown}");
    shown
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
