//! `mainstay docs`: the API's documentation, which the server holds itself.

use std::process::{Command, Stdio};

use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Docs {
    /// Only print the address
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl Docs {
    pub fn run(self) -> Result<()> {
        let url = Client::new(&self.client)?.url("/api/v1/doc", &[]);
        output::print(url.as_str())?;
        if self.print {
            return Ok(());
        }
        let open = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let opened = Command::new(open)
            .arg(url.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !opened.is_ok_and(|status| status.success()) {
            output::say("no browser could be opened; the address is above");
        }
        Ok(())
    }
}
