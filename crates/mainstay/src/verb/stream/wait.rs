//! Waiting for a stream to be as it was asked to be.

use std::time::{Duration, Instant};

use clap::Args;
use kernel::Class;
use streams::kubectl::Client;
use streams::kubectl::find::FoundStream;

use super::{called, show};
use crate::cli::duration;
use crate::error::{Error, Result};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub struct Wait {
    /// Wait until it is done
    #[arg(long)]
    pub wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
}

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);

impl Wait {
    /// Looks again and again, until `done` finds it so. An API server that is away for a while is
    /// no reason to give up.
    pub async fn until(
        &self,
        client: &Client,
        found: &FoundStream,
        mut done: impl AsyncFnMut(&FoundStream) -> Result<bool>,
    ) -> Result<FoundStream> {
        let begun = Instant::now();
        let mut progress = Progress::new();
        let mut said = format!("{}: asking", called(found));
        let mut last = found.clone();
        loop {
            let looked = async {
                let Some(now) = client.reload(found).await? else {
                    return Err(Error::Kernel(kernel::Error::NotFound(called(found))));
                };
                let is_done = done(&now).await?;
                Ok((now, is_done))
            };
            match progress.during(&said, looked).await {
                Ok((now, true)) => return Ok(now),
                Ok((now, false)) => (said, last) = (state(&now), now),
                Err(error) if error.class() == Class::Transient => {
                    said = format!("{}: {error}; trying again", called(found));
                }
                Err(error) => return Err(error),
            }
            if begun.elapsed() >= self.timeout {
                let why = show::headline(client, &last).await;
                return Err(Error::TimedOut(format!("{}\n{why}", state(&last))));
            }
            progress.during(&said, tokio::time::sleep(PAUSE)).await;
        }
    }
}

fn state(found: &FoundStream) -> String {
    let phase = match found.stream.phase.label(found.class.crd_version) {
        "" if found.stream.status.is_none() => "no operator has looked at it yet",
        "" => "not started",
        phase => phase,
    };
    let message = found.stream.status.as_deref().map(|written| &*written.message);
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{}: {phase}: {message}", called(found)),
        None => format!("{}: {phase}", called(found)),
    }
}
