//! Waits until a stream reaches the requested state.

use std::time::{Duration, Instant};

use clap::Args;
use kernel::Class;
use streams::kubectl::Client;
use streams::kubectl::find::FoundStream;

use super::{display_name, show};
use crate::cli::duration;
use crate::error::{Error, Result};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub struct Wait {
    /// Wait until it is done
    #[arg(long)]
    pub wait: bool,
    /// Timeout of --wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
}

/// The interval of polling.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Wait {
    /// Polls until `done` returns true. Transient errors of the API server are retried.
    pub async fn until(
        &self,
        client: &Client,
        found: &FoundStream,
        mut done: impl AsyncFnMut(&FoundStream) -> Result<bool>,
    ) -> Result<FoundStream> {
        let begun = Instant::now();
        let progress = Progress::new();
        let mut said = format!("{}: waiting", display_name(found));
        let mut last = found.clone();
        loop {
            let attempt = async {
                let Some(now) = client.reload(found).await? else {
                    return Err(Error::Kernel(kernel::Error::NotFound(display_name(found))));
                };
                let is_done = done(&now).await?;
                Ok((now, is_done))
            };
            match progress.during(&said, attempt).await {
                Ok((now, true)) => return Ok(now),
                Ok((now, false)) => (said, last) = (state(&now), now),
                Err(error) if error.class() == Class::Transient => {
                    said = format!("{}: {error}; retrying", display_name(found));
                }
                Err(error) => return Err(error),
            }
            if begun.elapsed() >= self.timeout {
                let why = show::headline(client, &last).await;
                return Err(Error::TimedOut(format!("{}\n{why}", state(&last))));
            }
            progress.during(&said, tokio::time::sleep(POLL_INTERVAL)).await;
        }
    }
}

fn state(found: &FoundStream) -> String {
    let phase = match found.stream.phase.label(found.class.crd_version) {
        "" if found.stream.status.is_none() => "no operator has reconciled it yet",
        "" => "not started",
        phase => phase,
    };
    let message = found.stream.status.as_deref().map(|written| &*written.message);
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{}: {phase}: {message}", display_name(found)),
        None => format!("{}: {phase}", display_name(found)),
    }
}
