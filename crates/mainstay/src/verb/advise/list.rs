//! What the server recommends.

use advisor::model::advice::Advice;
use advisor::model::wire::read;
use clap::Args;
use kernel::Error as KernelError;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Chosen;
use super::shown::{Format, Shown};
use crate::client::{Client, ServerArgs};
use crate::error::Result;
use crate::output;

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    chosen: Chosen,
    /// Only what this job recommended
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    #[command(flatten)]
    shown: Shown,
    /// `json` and `yaml` have everything, `csv` one line for each container
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    server: ServerArgs,
}

impl List {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::of(&self.server)?;
        let advice = match &self.job {
            Some(id) => of_job(&mut client, id, &self.chosen).await?,
            None => recommendations(&mut client, &[], &self.chosen).await?,
        };
        if advice.is_empty() && self.output == Format::Table {
            let program = output::program();
            output::say(&format!("nothing is recommended; `{program} advise start --wait` does"));
            return Ok(());
        }
        let now = jiff::Timestamp::from_millisecond(client.ambient.now().0)
            .map_err(|error| KernelError::internal("the time of this machine", error))?;
        let source = client.url("/", &[]).to_string();
        self.shown.show(self.output, &advice, &source, now)
    }
}

/// What a job has recommended.
pub async fn of_job(client: &mut Client, id: &str, chosen: &Chosen) -> Result<Vec<Advice>> {
    recommendations(client, &[("job_id", Some(id.to_owned()))], chosen).await
}

/// One element after the other: all of them parsed would take ten times the memory.
async fn recommendations(
    client: &mut Client,
    query: &[(&str, Option<String>)],
    chosen: &Chosen,
) -> Result<Vec<Advice>> {
    let url = client.url("/listRecommendations", query);
    let elements: Vec<Box<RawValue>> = client.get(url).await?;
    let mut all = Vec::with_capacity(elements.len());
    for element in elements {
        let element: Value = serde_json::from_str(element.get())
            .map_err(|error| client.bad_response(error.to_string()))?;
        let found =
            read::advice(&element).map_err(|error| client.bad_response(error.to_string()))?;
        all.extend(found.into_iter().filter(|advice| chosen.has(advice)));
    }
    Ok(all)
}

impl Chosen {
    pub fn everything() -> Chosen {
        Chosen { namespace: Vec::new(), workload: Vec::new(), container: Vec::new() }
    }

    fn has(&self, Advice { member, .. }: &Advice) -> bool {
        let among = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|wanted| wanted.trim() == name)
        };
        among(&self.namespace, &member.namespace)
            && among(&self.workload, &member.workload)
            && among(&self.container, &member.container)
    }
}
