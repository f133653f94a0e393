//! The `mainstay` command: one binary for both sides. [`run`] is the whole program, given the
//! domains that the server manages.
//!
//! [`cli`] has the verbs, [`config`] the configuration, [`server`] puts the kernel's parts
//! together, [`local`] is for its own machine, [`client`] speaks to a server and [`verb`] holds
//! one file per verb.

mod cli;
mod client;
pub mod config;
pub mod error;
mod local;
mod output;
mod progress;
pub mod server;
mod verb;

use std::process::ExitCode;

use clap::Parser;
use kernel::Domain;

pub use cli::command;

/// Parses the arguments, does what they say, and gives the exit code of the error's class.
pub fn run(domains: Vec<Box<dyn Domain>>) -> ExitCode {
    kernel::outbound::install_tls();
    let cli = cli::Cli::parse();
    match cli.run(domains) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&error.report());
            ExitCode::from(error.class().exit_code())
        }
    }
}
