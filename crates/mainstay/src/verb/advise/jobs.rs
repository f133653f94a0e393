//! Bulk jobs of the server.

use clap::Args;
use kernel::query::PAGE_MAX;
use kernel::{Class, Error as KernelError};
use serde_json::{Value, json};

use super::Chosen;
use super::list::of_job;
use super::shown::{Format as Shape, Shown};
use crate::client::{Client, ClientArgs, ServerArgs};
use crate::error::{Error, Result};
use crate::output::{self, Format, ago, text};
use crate::progress::Progress;

const PATH: &str = "/api/v1/advisor/jobs";
/// The duration of one long poll; below the timeouts of proxies.
const POLL_S: u32 = 20;
/// Before a server that cannot be reached is tried again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct Start {
    /// The data source [default: prometheus-1]
    #[arg(long, value_name = "NAME")]
    datasource: Option<String>,
    #[command(flatten)]
    chosen: Chosen,
    /// Recommend for containers, for namespaces as a whole, or both
    #[arg(long, value_delimiter = ',', value_parser = ["container", "namespace"])]
    r#type: Vec<String>,
    /// One id makes one job, however often it is sent
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// The server posts the ended job to this URL
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Wait for the end, and show what came out
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    shown: Shown,
    /// With --wait: `json` and `yaml` have everything, `csv` one line for each container
    #[arg(short, long, value_enum, default_value = "table")]
    output: Shape,
    #[command(flatten)]
    server: ServerArgs,
}

impl Start {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::of(&self.server)?;
        let created = client.post(client.url("/bulk", &[]), Some(&self.request())).await?;
        let id = text(&created["job_id"]);
        if !self.wait {
            let program = output::program();
            output::say(&format!("job {id} is started. Try: {program} advise job {id} --wait"));
            return output::print(&id);
        }
        output::say(&format!("job {id} is started"));
        let job = wait(&mut client, &id).await?;
        notices(&job);
        let advice = of_job(&mut client, &id, &Chosen::everything()).await?;
        let input = &job["input"]["datasource"];
        let now = jiff::Timestamp::from_millisecond(client.ambient.now().0)
            .map_err(|error| KernelError::internal("the time of this machine", error))?;
        self.shown.show(self.output, &advice, &text(input), now)?;
        ended_well(&job)
    }

    fn request(&self) -> Value {
        let mut request = json!({});
        let mut set = |name: &str, value: Value| request[name] = value;
        if let Some(name) = &self.datasource {
            set("datasource", name.as_str().into());
        }
        if !self.chosen.is_everything() {
            set("filter", self.chosen.filter());
        }
        if !self.r#type.is_empty() {
            set("experiment_types", json!(self.r#type));
        }
        if let Some(id) = &self.request_id {
            set("requestId", id.as_str().into());
        }
        if let Some(url) = &self.webhook {
            set("webhook", json!({ "url": url }));
        }
        request
    }
}

#[derive(Debug, Args)]
pub struct Jobs {
    #[command(flatten)]
    client: ClientArgs,
}

impl Jobs {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        let query = [("limit", Some(PAGE_MAX.to_string()))];
        let list: Value = client.get(client.url(PATH, &query)).await?;
        let none = list["jobs"].as_array().is_none_or(Vec::is_empty);
        if none && self.client.output == Format::Table {
            let program = output::program();
            output::say(&format!("there are no jobs; `{program} advise start --wait` starts one"));
            return Ok(());
        }
        output::print(&rows(self.client.output, &list["jobs"], &client))
    }
}

fn rows(format: Format, jobs: &Value, client: &Client) -> String {
    let now = client.ambient.now();
    let head = ["ID", "PHASE", "CONTAINERS", "DONE", "FAILED", "DATA SOURCE", "AGE", "WHY"];
    output::render(format, jobs, &head, &|job| {
        vec![
            text(&job["job_id"]),
            text(&job["phase"]),
            text(&job["total_experiments"]),
            text(&job["processed_experiments"]),
            text(&job["failed_experiments"]),
            text(&job["input"]["datasource"]),
            ago(&job["job_start_time"], now),
            messages(job).join("; "),
        ]
    })
}

fn messages(job: &Value) -> Vec<String> {
    let notices = job["notifications"].as_object();
    notices.into_iter().flat_map(|all| all.values()).map(|one| text(&one["message"])).collect()
}

#[derive(Debug, Args)]
pub struct Job {
    /// Its id
    id: String,
    /// Wait for its end
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl Job {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        let job = if self.wait {
            wait(&mut client, &self.id).await?
        } else {
            find(&mut client, &self.id).await?
        };
        output::print(&rows(self.client.output, &job, &client))?;
        if self.client.output == Format::Table && job["phase"] == "completed" {
            let program = output::program();
            output::say(&format!("what it recommends: {program} advise list --job {}", self.id));
        }
        if self.wait { ended_well(&job) } else { Ok(()) }
    }
}

#[derive(Debug, Args)]
pub struct One {
    /// The job's id
    id: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl One {
    pub async fn cancel(self) -> Result<()> {
        let mut client = Client::of(&self.server)?;
        client.post(client.url(&format!("{PATH}/{}/cancel", self.id), &[]), None).await?;
        output::say(&format!("job {} is being cancelled", self.id));
        Ok(())
    }

    pub async fn delete(self) -> Result<()> {
        let mut client = Client::of(&self.server)?;
        client.delete(client.url(&format!("{PATH}/{}", self.id), &[])).await?;
        output::say(&format!("job {} is being deleted", self.id));
        Ok(())
    }
}

async fn find(client: &mut Client, id: &str) -> Result<Value> {
    client.get(client.url(&format!("{PATH}/{id}"), &[])).await
}

/// Follows a job to its end. A server that is away for a while is tried again.
async fn wait(client: &mut Client, id: &str) -> Result<Value> {
    let progress = Progress::new();
    let key = format!("bulk-job/{id}");
    let mut after = 0;
    loop {
        let job = retry(&progress, client, &format!("{PATH}/{id}"), &[]).await?;
        let count = |field: &str| job[field].as_u64().unwrap_or(0) as usize;
        progress.count("containers", count("processed_experiments"), count("total_experiments"));
        if !job["job_end_time"].is_null() {
            return Ok(job);
        }
        let query = [
            ("object", Some(key.clone())),
            ("after", Some(after.to_string())),
            ("wait_s", Some(POLL_S.to_string())),
        ];
        let page = retry(&progress, client, "/api/v1/events", &query).await?;
        after = page["next"].as_i64().unwrap_or(after);
    }
}

async fn retry(
    progress: &Progress,
    client: &mut Client,
    path: &str,
    query: &[(&str, Option<String>)],
) -> Result<Value> {
    loop {
        match client.ask::<Value>(client.url(path, query)).await {
            Err(error) if error.class() == Class::Transient => {
                let message = format!("{error}; trying again");
                progress.during(&message, tokio::time::sleep(RETRY_AFTER)).await;
            }
            done => return done,
        }
    }
}

fn notices(job: &Value) {
    messages(job).iter().for_each(|message| output::say(message));
}

/// A job that failed or was cancelled is an error for scripts.
fn ended_well(job: &Value) -> Result<()> {
    let phase = text(&job["phase"]);
    if phase == "completed" {
        return Ok(());
    }
    let message = format!("job {} is {phase}: {}", text(&job["job_id"]), messages(job).join("; "));
    Err(Error::Server { class: Class::Conflict, message, field: None, request_id: None })
}
