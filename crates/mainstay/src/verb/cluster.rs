//! `mainstay cluster …`: the data planes, for admins.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, Format, ago, text};

const PATH: &str = "/api/v1/fleet/clusters";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the data planes
    List(ClientArgs),
    /// Register a data plane
    Register(Register),
    /// Print the parameters of a data plane's agent, including its secret
    Parameters(One),
    /// Place no new instances on a data plane
    Cordon(One),
    /// Place new instances on a data plane again
    Uncordon(One),
    /// Delete a data plane, once it is empty
    Delete(One),
}

#[derive(Debug, Args)]
pub struct Register {
    /// Letters, digits and '-'
    id: String,
    /// agent (one will report), standalone (a kubeconfig context) or terraform
    #[arg(long, default_value = "agent")]
    provider: String,
    #[arg(long, default_value = "")]
    cloud_provider: String,
    #[arg(long, default_value = "")]
    region: String,
    /// The domain of its routers
    #[arg(long, default_value = "")]
    dns_name: String,
    /// Units that it may hold
    #[arg(long)]
    limit: Option<i64>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct One {
    id: String,
    #[command(flatten)]
    client: ClientArgs,
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::List(args) => {
                let mut client = Client::new(&args)?;
                let list: Value = client.get(client.url(PATH, &[])).await?;
                if list.as_array().is_none_or(Vec::is_empty) && args.output == Format::Table {
                    let program = output::program();
                    output::say(&format!(
                        "there is no data plane; `{program} cluster register ID` adds one"
                    ));
                    return Ok(());
                }
                output::print(&rows(&args, &list, &client))
            }
            Verb::Register(verb) => {
                let mut client = Client::new(&verb.client)?;
                let body = json!({
                    "id": verb.id, "provider": verb.provider, "cloud_provider": verb.cloud_provider,
                    "region": verb.region, "dns_name": verb.dns_name, "limit": verb.limit,
                });
                let created = client.post(client.url(PATH, &[]), Some(&body)).await?;
                output::print(&rows(&verb.client, &created, &client))?;
                if verb.client.output == Format::Table {
                    let (program, id) = (output::program(), verb.id);
                    output::say(&format!(
                        "\n{program} cluster parameters {id}    prints the parameters of its agent"
                    ));
                }
                Ok(())
            }
            Verb::Parameters(one) => {
                let mut client = Client::new(&one.client)?;
                let url = client.url(&format!("{PATH}/{}/parameters", one.id), &[]);
                let found: Value = client.get(url).await?;
                match one.client.output {
                    Format::Json => output::print(&output::json(&found)),
                    Format::Yaml => output::print(&output::yaml(&found)),
                    Format::Table | Format::Name => {
                        let pairs = found.as_object().into_iter().flatten();
                        let lines = pairs.map(|(name, value)| format!("{name}={}\n", text(value)));
                        output::print(&lines.collect::<String>())
                    }
                }
            }
            Verb::Cordon(one) => one.change(&json!({ "schedulable": false })).await,
            Verb::Uncordon(one) => one.change(&json!({ "schedulable": true })).await,
            Verb::Delete(one) => {
                let mut client = Client::new(&one.client)?;
                let url = client.url(&format!("{PATH}/{}", one.id), &[]);
                client.delete(url).await?;
                output::say(&format!("{} is deleted once it is empty", one.id));
                Ok(())
            }
        }
    }
}

impl One {
    async fn change(self, body: &Value) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        let url = client.url(&format!("{PATH}/{}", self.id), &[]);
        let changed = client.patch(url, body).await?;
        output::print(&rows(&self.client, &changed, &client))
    }
}

fn rows(args: &ClientArgs, clusters: &Value, client: &Client) -> String {
    let now = client.ambient.now();
    let head = ["ID", "STATUS", "PROVIDER", "WHERE", "USED", "LIMIT", "AGENT SEEN", "NOTE"];
    output::render(args.output, clusters, &head, &|one| {
        let (spec, status) = (&one["spec"], &one["seen"]);
        let place = format!("{} {}", text(&spec["cloud_provider"]), text(&spec["region"]));
        let seen_at = &status["heard_at"];
        let note = match (status["agent_lost"].as_bool(), spec["schedulable"].as_bool()) {
            (Some(true), _) => "its agent is lost".into(),
            (_, Some(false)) => "takes no new instances".into(),
            _ => text(&status["waiting_for"]),
        };
        vec![
            text(&one["id"]),
            text(&one["status"]),
            text(&spec["provider"]),
            if place.trim().is_empty() { "anywhere".into() } else { place },
            text(&one["used"]),
            text(&spec["limit"]),
            if seen_at.is_null() { String::new() } else { ago(seen_at, now) },
            note,
        ]
    })
}
