//! `mainstay leash`: the process between the server and a program that must not outlive its lease.

use std::ffi::OsString;

use clap::Args;

use crate::error::Result;

#[derive(Debug, Args)]
pub struct Leash {
    /// LEFT_MS,GRACE_MS PROGRAM ARGS
    #[arg(last = true, required = true)]
    args: Vec<OsString>,
}

impl Leash {
    pub async fn run(self) -> Result<()> {
        let code = kernel::leash::supervise(&self.args).await;
        // Ends at once: a thread still reads the standard input.
        std::process::exit(code.into())
    }
}
