//! Requests to servers while they start, through `curl`: this crate is built before everything
//! else, and a client of its own would be the largest part of it.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Calls `curl` with these arguments; answers the body of a 2xx.
pub fn curl(args: &[&str]) -> Result<String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail-with-body", "--noproxy", "*"]);
    curl.args(["--max-time", "20"]).args(args);
    let output = curl.output().context("curl cannot run: `apt-get install curl`")?;
    let body = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{}{body}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(body)
}
