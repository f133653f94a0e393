//! What the server recommends, and why it has no recommendation for a container.

use std::collections::BTreeMap;

use advisor::model::advice::Advice;
use advisor::model::experiment::{EXPERIMENT, ExperimentPhase};
use advisor::model::wire::read;
use clap::Args;
use kernel::Error as KernelError;
use kernel::query::PAGE_MAX;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Chosen;
use super::shown::{Format, Shown};
use crate::client::{Client, ServerArgs};
use crate::error::Result;
use crate::output::{self, text};

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
            None => {
                let failures = newest_failures(&mut client).await?;
                recommendations(&mut client, &[], &self.chosen, &failures).await?
            }
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
    let id = |name: &'static str| (name, Some(id.to_owned()));
    let include = ("include", Some("experiments|status|notifications".to_owned()));
    // A line for each experiment, without what is recommended.
    let job: JobOutcome = client.get(client.url("/bulk", &[id("job_id"), include])).await?;
    recommendations(client, &[id("job_id")], chosen, &job.failures()).await
}

/// Why experiments failed, by their names. Their elements say only that there is not enough data.
type Failures = BTreeMap<String, String>;

#[derive(Deserialize)]
struct JobOutcome {
    experiments: BTreeMap<String, Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    status: String,
    #[serde(default)]
    notifications: BTreeMap<String, Notification>,
}

#[derive(Deserialize)]
struct Notification {
    message: String,
}

impl JobOutcome {
    fn failures(self) -> Failures {
        let failed = self.experiments.into_iter().filter(|(_, it)| it.status == "FAILED");
        let why = failed.map(|(name, Outcome { notifications, .. })| {
            let messages: Vec<&str> =
                notifications.values().map(|one| reason(&one.message)).collect();
            (name, failed_because(&messages.join("; ")))
        });
        why.collect()
    }
}

/// Without the words that the interface puts around it.
fn reason(message: &str) -> &str {
    let inner = message.strip_prefix("Not able to proceed due to. (");
    inner.and_then(|inner| inner.strip_suffix(')')).unwrap_or(message)
}

fn failed_because(why: &str) -> String {
    if why.is_empty() { "failed".to_owned() } else { format!("failed: {why}") }
}

#[derive(Deserialize)]
struct Page {
    objects: Vec<Value>,
    next: Option<i64>,
}

/// Of experiments whose last attempt failed.
async fn newest_failures(client: &mut Client) -> Result<Failures> {
    let mut failures = Failures::new();
    let mut after = None;
    loop {
        let query = [
            ("kind", Some(EXPERIMENT.to_owned())),
            ("phase", Some(ExperimentPhase::Failed.label().to_owned())),
            ("limit", Some(PAGE_MAX.to_string())),
            ("after", after.map(|after: i64| after.to_string())),
        ];
        let page: Page = client.get(client.url("/api/v1/objects", &query)).await?;
        failures.extend(page.objects.iter().map(|object| {
            let why = object["status"]["error"].as_str().unwrap_or_default();
            (text(&object["name"]), failed_because(why))
        }));
        after = page.next;
        if after.is_none() {
            return Ok(failures);
        }
    }
}

/// One element after the other: all of them parsed would take ten times the memory.
async fn recommendations(
    client: &mut Client,
    query: &[(&str, Option<String>)],
    chosen: &Chosen,
    failures: &Failures,
) -> Result<Vec<Advice>> {
    let url = client.url("/listRecommendations", query);
    let elements: Vec<Box<RawValue>> = client.get(url).await?;
    let mut all = Vec::with_capacity(elements.len());
    for element in elements {
        let found = advice(&element, failures).map_err(|why| client.bad_response(why))?;
        all.extend(found.into_iter().filter(|advice| chosen.has(advice)));
    }
    Ok(all)
}

/// What is recommended in an element. What an experiment was recommended before it failed stays.
fn advice(element: &RawValue, failures: &Failures) -> std::result::Result<Vec<Advice>, String> {
    let element: Value = serde_json::from_str(element.get()).map_err(|error| error.to_string())?;
    let mut all = read::advice(&element).map_err(|error| error.to_string())?;
    for advice in &mut all {
        let nothing = advice.outcome.as_ref().is_ok_and(|found| found.latest.is_none());
        if let (true, Some(why)) = (nothing, failures.get(&advice.experiment)) {
            advice.outcome = Err(why.clone());
        }
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

#[cfg(test)]
mod tests {
    use advisor::report::{Choice, Engine, Summary, csv};
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn a_container_that_failed_says_why_and_others_that_there_is_not_enough_data() {
        let job = json!({ "experiments": {
            "a": { "status": "FAILED", "notifications": { "503": { "type": "ERROR",
                "code": 503, "message": "Not able to proceed due to. (the answer is (too) large)" } } },
            "b": { "status": "PROCESSED", "status_history": [] },
            "c": { "status": "FAILED" },
        } });
        let job: JobOutcome = serde_json::from_value(job).unwrap();
        let failures = job.failures();
        let element = |experiment: &str| {
            let recommendations = json!({ "version": "1.0", "data": {}, "notifications": {
                "120001": { "type": "info", "message": "There is not enough data", "code": 120001 } } });
            to_raw_value(&json!({ "experiment_name": experiment, "kubernetes_objects": [{
                "type": "deployment", "name": "web", "namespace": "shop", "containers": [{
                    "container_name": experiment, "recommendations": recommendations }] }] }))
            .unwrap()
        };
        let all: Vec<Advice> = ["a", "b", "c"]
            .iter()
            .flat_map(|name| advice(&element(name), &failures).unwrap())
            .collect();
        let summary = Summary::new(&all, Choice { term: None, engine: Engine::Cost });
        let skipped: Vec<&str> = summary.skipped.iter().map(|skipped| skipped.reason).collect();
        assert_eq!(skipped, ["failed: the answer is (too) large", "not enough data", "failed"]);
        let mut text = String::new();
        csv::write(&summary, &mut text).unwrap();
        assert!(text.contains("failed: the answer is (too) large"), "{text}");
    }
}
