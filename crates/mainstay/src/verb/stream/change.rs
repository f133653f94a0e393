//! `mainstay stream start`, `stop` and `restart`.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use streams::kubectl::Client;
use streams::kubectl::find::FoundStream;
use streams::model::phase::Phase;
use streams::model::{CrdVersion, RESTART};

use super::wait::Wait;
use super::{ClusterArgs, display_name, show};
use crate::error::Result;
use crate::output;

#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// NAME, KIND/NAME or CLASS/NAME; may be repeated
    #[arg(required = true)]
    streams: Vec<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Start,
    Stop,
    Restart,
}

/// How long to wait for a running operator to act.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(30);

impl ChangeArgs {
    pub async fn run(self, change: Change) -> Result<()> {
        let (client, scope) = self.cluster.open().await?;
        for name in &self.streams {
            let found = client.stream(&scope, name).await?;
            if let (Change::Start, Some(key)) = (change, found.downtime()) {
                let me = output::program();
                output::say(&format!(
                    "note: it remains part of the downtime {key}; `{me} stream downtime stop {key}` ends that"
                ));
            }
            let object = self.apply(&client, &found, change).await?;
            show::written(self.cluster.output, &object, &said(&found, change))?;
            let later = change == Change::Restart && found.suspended();
            if self.wait.wait && !later {
                let wanted = object["metadata"]["annotations"][RESTART].as_str().map(str::to_owned);
                self.wait(&client, &found, change, wanted).await?;
            }
        }
        Ok(())
    }

    async fn apply(&self, client: &Client, found: &FoundStream, change: Change) -> Result<Value> {
        let failed = found.stream.phase == Phase::Failed && !found.suspended();
        Ok(match change {
            Change::Stop => client.suspend(found, true).await?,
            Change::Start | Change::Restart
                if failed && found.class.crd_version == CrdVersion::V1 =>
            {
                self.leave_failed(client, found).await?
            }
            Change::Start if !failed => client.suspend(found, false).await?,
            Change::Start | Change::Restart => {
                client.restart(found, jiff::Timestamp::now()).await?
            }
        })
    }

    /// Suspends and resumes a failed stream: with any operator this is the only transition out of
    /// Failed.
    async fn leave_failed(&self, client: &Client, found: &FoundStream) -> Result<Value> {
        client.suspend(found, true).await?;
        let noticed = Wait { wait: true, timeout: OPERATOR_TIMEOUT };
        let suspended = async |now: &FoundStream| Ok(now.stream.phase == Phase::Suspended);
        let noticed = noticed.until(client, found, suspended).await;
        // Also if no operator acted: the stream was not suspended before.
        let object = client.suspend(found, false).await?;
        noticed.map(|_| object)
    }

    async fn wait(
        &self,
        client: &Client,
        found: &FoundStream,
        change: Change,
        restart: Option<String>,
    ) -> Result<()> {
        let began = found.stream.phase;
        let now = self.wait.until(client, found, async |now: &FoundStream| {
            let phase = now.stream.phase;
            if phase == Phase::Failed && began != Phase::Failed && change != Change::Stop {
                let why = show::headline(client, now).await;
                return Err(kernel::Error::Conflict(format!("{}: {why}", display_name(now))).into());
            }
            Ok(match change {
                Change::Stop => phase == Phase::Suspended,
                // A failed stream was suspended and resumed, without a new restart value.
                Change::Start | Change::Restart
                    if change == Change::Start || began == Phase::Failed =>
                {
                    matches!(phase, Phase::Running | Phase::Scheduled | Phase::Backfilling)
                }
                Change::Start | Change::Restart => {
                    client.facts(now, jiff::Timestamp::now()).await.is_ok_and(|facts| {
                        let job = facts
                            .job
                            .filter(|job| !job.deleting)
                            .and_then(|job| job.made_from.restart);
                        let cron_job =
                            facts.cron_job.and_then(|cron_job| cron_job.made_from.restart);
                        job.or(cron_job).as_deref() == restart.as_deref()
                    })
                }
            })
        });
        let now = now.await?;
        output::say(&format!(
            "{} is {}",
            display_name(&now),
            now.stream.phase.label(now.class.crd_version)
        ));
        Ok(())
    }
}

fn said(found: &FoundStream, change: Change) -> String {
    let name = display_name(found);
    match (change, found.suspended()) {
        (Change::Start, false) if found.stream.phase == Phase::Failed => {
            format!("{name} is being restarted")
        }
        (Change::Start, false) => format!("{name} was not suspended"),
        (Change::Start, true) => format!("{name} is being resumed"),
        (Change::Stop, true) => format!("{name} was suspended already"),
        (Change::Stop, false) => format!("{name} is being suspended"),
        (Change::Restart, true) => {
            format!("{name} is suspended: it restarts when it is resumed")
        }
        (Change::Restart, false) => format!("{name} is being restarted"),
    }
}
