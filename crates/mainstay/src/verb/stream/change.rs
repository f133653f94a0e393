//! `mainstay stream start`, `stop` and `restart`.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use streams::kubectl::Client;
use streams::kubectl::find::FoundStream;
use streams::model::phase::Phase;
use streams::model::{CrdVersion, RESTART};

use super::wait::Wait;
use super::{ClusterArgs, called, show};
use crate::error::Result;
use crate::output;

#[derive(Debug, Args)]
pub struct Change {
    /// NAME, KIND/NAME or CLASS/NAME; several are changed one after another
    #[arg(required = true)]
    streams: Vec<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Start,
    Stop,
    Restart,
}

/// An operator that is there sees a change within this.
const NOTICED: Duration = Duration::from_secs(30);

impl Change {
    pub async fn run(self, wish: Wish) -> Result<()> {
        let (client, scope) = self.cluster.open().await?;
        for name in &self.streams {
            let found = client.stream(&scope, name).await?;
            if let (Wish::Start, Some(key)) = (wish, found.downtime()) {
                let me = output::program();
                output::say(&format!(
                    "note: it stays part of the downtime {key}; `{me} stream downtime stop {key}` ends that"
                ));
            }
            let object = self.wished(&client, &found, wish).await?;
            show::written(self.cluster.output, &object, &said(&found, wish))?;
            let later = wish == Wish::Restart && found.suspended();
            if self.wait.wait && !later {
                let wanted = object["metadata"]["annotations"][RESTART].as_str().map(str::to_owned);
                self.wait(&client, &found, wish, wanted).await?;
            }
        }
        Ok(())
    }

    async fn wished(&self, client: &Client, found: &FoundStream, wish: Wish) -> Result<Value> {
        let failed = found.stream.phase == Phase::Failed && !found.suspended();
        Ok(match wish {
            Wish::Stop => client.suspend(found, true).await?,
            Wish::Start | Wish::Restart if failed && found.class.crd_version == CrdVersion::V1 => {
                self.out_of_failure(client, found).await?
            }
            Wish::Start if !failed => client.suspend(found, false).await?,
            Wish::Start | Wish::Restart => client.restart(found, jiff::Timestamp::now()).await?,
        })
    }

    /// A stream that has failed leaves that only through being suspended, whichever operator
    /// looks after it.
    async fn out_of_failure(&self, client: &Client, found: &FoundStream) -> Result<Value> {
        client.suspend(found, true).await?;
        let noticed = Wait { wait: true, timeout: NOTICED };
        let suspended = async |now: &FoundStream| Ok(now.stream.phase == Phase::Suspended);
        let noticed = noticed.until(client, found, suspended).await;
        // Also if nobody noticed: it was not suspended before.
        let object = client.suspend(found, false).await?;
        noticed.map(|_| object)
    }

    async fn wait(
        &self,
        client: &Client,
        found: &FoundStream,
        wish: Wish,
        restart: Option<String>,
    ) -> Result<()> {
        let began = found.stream.phase;
        let now = self.wait.until(client, found, async |now: &FoundStream| {
            let phase = now.stream.phase;
            if phase == Phase::Failed && began != Phase::Failed && wish != Wish::Stop {
                let why = show::headline(client, now).await;
                return Err(kernel::Error::Conflict(format!("{}: {why}", called(now))).into());
            }
            Ok(match wish {
                Wish::Stop => phase == Phase::Suspended,
                // One that had failed was only suspended and let go on again.
                Wish::Start | Wish::Restart if wish == Wish::Start || began == Phase::Failed => {
                    matches!(phase, Phase::Running | Phase::Scheduled | Phase::Backfilling)
                }
                Wish::Start | Wish::Restart => {
                    client.facts(now, jiff::Timestamp::now()).await.is_ok_and(|facts| {
                        let job = facts.job.filter(|job| !job.deleting).and_then(|job| job.restart);
                        let cron_job = facts.cron_job.and_then(|cron_job| cron_job.restart);
                        job.or(cron_job).as_deref() == restart.as_deref()
                    })
                }
            })
        });
        let now = now.await?;
        output::say(&format!(
            "{} is {}",
            called(&now),
            now.stream.phase.label(now.class.crd_version)
        ));
        Ok(())
    }
}

fn said(found: &FoundStream, wish: Wish) -> String {
    let name = called(found);
    match (wish, found.suspended()) {
        (Wish::Start, false) if found.stream.phase == Phase::Failed => {
            format!("{name} is started again")
        }
        (Wish::Start, false) => format!("{name} was not suspended"),
        (Wish::Start, true) => format!("{name} goes on"),
        (Wish::Stop, true) => format!("{name} was suspended already"),
        (Wish::Stop, false) => format!("{name} is being suspended"),
        (Wish::Restart, true) => {
            format!("{name} is suspended: it will be started anew when it goes on")
        }
        (Wish::Restart, false) => format!("{name} is being started anew"),
    }
}
