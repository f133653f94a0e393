//! Runs cargo in the workspace.

use std::path::PathBuf;
use std::process::Command;

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
    let shown = format!("cargo {}", args.join(" "));
    eprintln!("$ {shown}");
    let envs = env.iter().map(|(name, value)| (name, value));
    let status =
        command(args).envs(envs).status().with_context(|| format!("{shown} cannot start"))?;
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
