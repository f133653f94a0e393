//! `mainstay kafka …`, `mainstay dinosaur …` and the same for every kind that the server knows.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::get::Get;
use crate::cli::{duration, key_value};
use crate::client::{Client, ClientArgs};
use crate::error::{Error, Result};
use crate::output::{self, Format, ago, text};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create an instance
    Create(Create),
    /// List instances
    List(List),
    /// Show an instance
    Get(One),
    /// Show the status of an instance, since when, and what it waits for
    Describe(One),
    /// Delete an instance
    Delete(Delete),
    /// Move an instance to another billing model
    Promote(Promote),
}

#[derive(Debug, Args)]
pub struct Create {
    /// 1 to 32 lower-case letters, digits and '-'
    #[arg(long)]
    name: String,
    /// Instance type and size, as in standard.x1
    #[arg(long)]
    plan: Option<String>,
    #[arg(long)]
    cloud_provider: Option<String>,
    #[arg(long)]
    region: Option<String>,
    #[arg(long)]
    billing_model: Option<String>,
    /// Run it on this cluster of your organisation
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// Any other field of the kind; may be repeated
    #[arg(long = "set", value_name = "FIELD=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
struct Wait {
    /// Wait until it is done
    #[arg(long)]
    wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
}

#[derive(Debug, Args)]
pub struct List {
    /// As in: name like 'a%' and status = ready
    #[arg(long, value_name = "EXPRESSION")]
    search: Option<String>,
    /// As in: created_at desc
    #[arg(long, value_name = "COLUMNS")]
    order_by: Option<String>,
    #[arg(long, default_value_t = 1)]
    page: i64,
    #[arg(long, default_value_t = 100)]
    size: i64,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct One {
    /// Its name or its id
    instance: String,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct Delete {
    /// Its name or its id
    instance: String,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct Promote {
    /// Its name or its id
    instance: String,
    /// The billing model that it should have
    #[arg(long)]
    billing_model: String,
    #[arg(long)]
    marketplace: Option<String>,
    #[arg(long)]
    billing_account: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// A kind, as the server describes it.
#[derive(Debug, Deserialize)]
struct Kind {
    kind: String,
    plural: String,
    title: String,
    prefix: String,
    fields: std::collections::BTreeMap<String, String>,
}

impl Kind {
    fn path(&self, rest: &str) -> String {
        format!("{}/{}{rest}", self.prefix, self.plural)
    }

    /// Parses a field by the type that the kind declares.
    fn value(&self, field: &str, text: &str) -> Result<Value> {
        let invalid = |what: &str| kernel::Error::invalid(field, format!("must be {what}")).into();
        match self.fields.get(field).map(String::as_str) {
            Some("boolean") => text.parse().map(Value::Bool).map_err(|_| invalid("true or false")),
            Some("integer") => {
                text.parse::<i64>().map(Value::from).map_err(|_| invalid("a whole number"))
            }
            Some(_) => Ok(text.into()),
            None => {
                let all: Vec<&str> = self.fields.keys().map(String::as_str).collect();
                let all = if all.is_empty() { "none".into() } else { all.join(", ") };
                Err(invalid(&format!("a field of a {}: {all}", self.kind)))
            }
        }
    }
}

impl Verb {
    pub async fn run(self, kind: &str) -> Result<()> {
        match self {
            Verb::Create(verb) => verb.run(kind).await,
            Verb::List(verb) => verb.run(kind).await,
            Verb::Get(verb) => verb.get(kind).await,
            Verb::Describe(verb) => verb.describe(kind).await,
            Verb::Delete(verb) => verb.run(kind).await,
            Verb::Promote(verb) => verb.run(kind).await,
        }
    }
}

async fn open(args: &ClientArgs, kind: &str) -> Result<(Client, Kind)> {
    let mut client = Client::new(args)?;
    let kinds: Vec<Kind> = client.get(client.url("/api/v1/fleet/kinds", &[])).await?;
    let names: Vec<String> = kinds.iter().map(|kind| kind.kind.clone()).collect();
    match kinds.into_iter().find(|known| known.kind == kind || known.plural == kind) {
        Some(found) => Ok((client, found)),
        None => Err(kernel::Error::invalid(
            "kind",
            format!("the server does not have the kind `{kind}`; it has {}", names.join(", ")),
        )
        .into()),
    }
}

impl Create {
    async fn run(self, kind: &str) -> Result<()> {
        let (mut client, kind) = open(&self.client, kind).await?;
        let mut body = Map::new();
        let fields = [
            ("name", Some(&self.name)),
            ("plan", self.plan.as_ref()),
            ("cloud_provider", self.cloud_provider.as_ref()),
            ("region", self.region.as_ref()),
            ("billing_model", self.billing_model.as_ref()),
            ("cluster_id", self.cluster.as_ref()),
        ];
        body.extend(fields.into_iter().filter_map(|(k, v)| Some((k.into(), v?.clone().into()))));
        for (field, text) in &self.set {
            body.insert(field.clone(), kind.value(field, text)?);
        }
        let url = client.url(&kind.path(""), &[("async", Some("true".into()))]);
        let mut created = client.post(url, Some(&Value::Object(body))).await?;
        let id = text(&created["id"]);
        if self.wait.wait {
            wait(&kind, &id, "ready,failed", self.wait.timeout, &self.client).await?;
            created = client.get(client.url(&kind.path(&format!("/{id}")), &[])).await?;
        }
        output::print(&rows(self.client.output, &created, &client))?;
        if created["status"] == "failed" {
            let why = text(&created["failed_reason"]);
            return Err(Error::from(kernel::Error::Conflict(format!(
                "{} failed: {why}",
                self.name
            ))));
        }
        if self.client.output == Format::Table {
            output::say(&next_step(&kind, &created, self.wait.wait));
        }
        Ok(())
    }
}

/// A hint what to try next.
fn next_step(kind: &Kind, instance: &Value, waited: bool) -> String {
    let program = output::program();
    let name = text(&instance["name"]);
    match (kind.kind.as_str(), endpoint(instance)) {
        ("kafka", at) if waited && !at.is_empty() => format!(
            "\n{name} is ready. Try:\n  echo hello | kcat -b {at} -t demo -P && kcat -b {at} -t demo -C -e"
        ),
        (_, at) if waited && !at.is_empty() => {
            format!("\n{name} is ready at {at}. Try:\n  curl http://{at}/")
        }
        (kind, _) => format!("\n{program} {kind} describe {name}    shows its progress"),
    }
}

async fn wait(
    kind: &Kind,
    id: &str,
    phases: &str,
    timeout: Duration,
    args: &ClientArgs,
) -> Result<()> {
    let get = Get::until(&kind.kind, id, phases, timeout, args.clone());
    get.wait().await
}

fn endpoint(instance: &Value) -> String {
    let host = ["bootstrap_server_host", "host", "endpoint"];
    host.iter().map(|field| text(&instance[*field])).find(|at| !at.is_empty()).unwrap_or_default()
}

fn rows(format: Format, instances: &Value, client: &Client) -> String {
    let now = client.ambient.now();
    let head = ["ID", "NAME", "STATUS", "PLAN", "ENDPOINT", "OWNER", "AGE"];
    output::render(format, instances, &head, &|one| {
        let plan = match (text(&one["instance_type"]), text(&one["size_id"])) {
            (ty, size) if size.is_empty() => ty,
            (ty, size) => format!("{ty}.{size}"),
        };
        vec![
            text(&one["id"]),
            text(&one["name"]),
            text(&one["status"]),
            plan,
            endpoint(one),
            text(&one["owner"]),
            ago(&one["created_at"], now),
        ]
    })
}

impl List {
    async fn run(self, kind: &str) -> Result<()> {
        let (mut client, kind) = open(&self.client, kind).await?;
        let query = [
            ("page", Some(self.page.to_string())),
            ("size", Some(self.size.to_string())),
            ("search", self.search),
            ("orderBy", self.order_by),
        ];
        let list: Value = client.get(client.url(&kind.path(""), &query)).await?;
        let total = list["total"].as_i64().unwrap_or(0);
        if total == 0 && self.client.output == Format::Table {
            let (program, kind) = (output::program(), &kind.kind);
            output::say(&format!(
                "nothing found; `{program} {kind} create --name demo --wait` creates one"
            ));
            return Ok(());
        }
        output::print(&rows(self.client.output, &list["items"], &client))?;
        if self.page.max(1) * self.size < total {
            output::say(&format!("there are {total}: --page {} has more", self.page.max(1) + 1));
        }
        Ok(())
    }
}

/// Finds an instance by name or id.
async fn find(client: &mut Client, kind: &Kind, name_or_id: &str) -> Result<Value> {
    let is_name =
        name_or_id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if is_name {
        let query = [("search", Some(format!("name = '{name_or_id}'")))];
        let list: Value = client.get(client.url(&kind.path(""), &query)).await?;
        if let Some(found) = list["items"].as_array().and_then(|items| items.first()) {
            return Ok(found.clone());
        }
    }
    client.get(client.url(&kind.path(&format!("/{name_or_id}")), &[])).await
}

impl One {
    async fn get(self, kind: &str) -> Result<()> {
        let (mut client, kind) = open(&self.client, kind).await?;
        let found = find(&mut client, &kind, &self.instance).await?;
        output::print(&rows(self.client.output, &found, &client))
    }

    async fn describe(self, kind: &str) -> Result<()> {
        let (mut client, kind) = open(&self.client, kind).await?;
        let found = find(&mut client, &kind, &self.instance).await?;
        let id = text(&found["id"]);
        let path = format!("/api/v1/fleet/instances/{}/{id}/explanation", kind.kind);
        let why: Value = client.get(client.url(&path, &[])).await?;
        let query = [("object", Some(format!("{}/{id}", kind.kind))), ("limit", Some("50".into()))];
        let events: Value = client.get(client.url("/api/v1/events", &query)).await?;
        if self.client.output != Format::Table {
            let all = json!({ "instance": found, "explanation": why, "events": events["events"] });
            return output::print(&match self.client.output {
                Format::Yaml => output::yaml(&all),
                _ => output::json(&all),
            });
        }
        output::print(&description(&kind, &found, &why, &events, &client))
    }
}

/// Everything about an instance, for people.
fn description(
    kind: &Kind,
    instance: &Value,
    why: &Value,
    events: &Value,
    client: &Client,
) -> String {
    let now = client.ambient.now();
    let line = |name: &str, value: String| match value.as_str() {
        "" => String::new(),
        value => format!("{name:<14}{value}\n"),
    };
    let field_of = |field: &str| text(&instance[field]);
    let mut out = format!("{} {} ({})\n", kind.title, field_of("name"), field_of("id"));
    out += &line("Status", format!("{} for {}", field_of("status"), ago(&why["since"], now)));
    out += &line("Waiting for", text(&why["waiting_for"]));
    out += &line("Failed", text(&why["failed_reason"]));
    out += &line("Endpoint", endpoint(instance));
    out += &line("Plan", format!("{} {}", field_of("instance_type"), field_of("size_id")));
    out += &line("Where", format!("{} {}", field_of("cloud_provider"), field_of("region")));
    out += &line("Cluster", text(&why["cluster"]));
    out += &line("Version", field_of("version"));
    out += &line("Owner", field_of("owner"));
    out += &line("Created", format!("{} ago", ago(&instance["created_at"], now)));
    if !instance["expires_at"].is_null() {
        out += &line("Expires", ago(&instance["expires_at"], now));
    }
    if !why["work"].is_null() {
        let work = &why["work"];
        let reasons = [text(&work["note"]), text(&work["reason"])];
        let reason: String =
            reasons.iter().filter(|it| !it.is_empty()).map(|it| format!(", {it}")).collect();
        out += &line(
            "Next attempt",
            format!("{} ({}{reason})", ago(&work["due"], now), text(&work["state"])),
        );
    }
    let clusters = why["clusters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !clusters.is_empty() {
        out += "\nClusters\n";
        out += &output::table(
            &["CLUSTER", "LEFT", "WHY"],
            clusters.iter().map(|one| {
                let verdict = match (one["chosen"].as_bool(), &one["against"]) {
                    (Some(true), _) => "placed here".into(),
                    (_, Value::Null) => "suitable".into(),
                    (_, against) => text(against),
                };
                vec![text(&one["cluster"]), text(&one["left"]), verdict]
            }),
        );
    }
    let events = events["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !events.is_empty() {
        out += "\nWhat happened\n";
        let what = |event: &Value| text(&event["type"]).rsplit('.').next().unwrap_or("").to_owned();
        let rows = events.iter().map(|event| vec![text(&event["time"]), what(event)]);
        out += &output::table(&["TIME", "EVENT"], rows);
    }
    out
}

impl Delete {
    async fn run(self, kind: &str) -> Result<()> {
        let (mut client, kind) = open(&self.client, kind).await?;
        let found = find(&mut client, &kind, &self.instance).await?;
        let id = text(&found["id"]);
        let url = client.url(&kind.path(&format!("/{id}")), &[("async", Some("true".into()))]);
        client.delete(url).await?;
        let name = text(&found["name"]);
        if !self.wait.wait {
            output::say(&format!("{name} is being deleted"));
            return Ok(());
        }
        wait(&kind, &id, "deleted", self.wait.timeout, &self.client).await?;
        output::say(&format!("{name} is gone"));
        Ok(())
    }
}

impl Promote {
    async fn run(self, kind: &str) -> Result<()> {
        let (mut client, kind) = open(&self.client, kind).await?;
        let found = find(&mut client, &kind, &self.instance).await?;
        let path = kind.path(&format!("/{}/promote", text(&found["id"])));
        let mut body = json!({ "desired_kafka_billing_model": self.billing_model });
        if let Some(marketplace) = self.marketplace {
            body["desired_marketplace"] = marketplace.into();
        }
        if let Some(account) = self.billing_account {
            body["desired_billing_cloud_account_id"] = account.into();
        }
        let url = client.url(&path, &[("async", Some("true".into()))]);
        client.post(url, Some(&body)).await?;
        output::say(&format!("{} is being promoted", text(&found["name"])));
        Ok(())
    }
}
