//! `mainstay schedule …`: commands that are carried out at certain times.

use clap::{Args, Subcommand, ValueEnum};
use kernel::query::PAGE_MAX;
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, Format, ago, text};

const PATH: &str = "/api/v1/schedules";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a schedule
    #[command(after_help = "\
The command is carried out with your rights, but without admin roles, once for each planned time. The
commands of a server: GET /api/v1/commands.

Examples:
  mainstay schedule create --name nightly --cron '0 2 * * *' --zone Europe/Berlin \\
      --command kafka.create --body '{\"name\": \"a\"}'
  mainstay schedule create --name cleanup --cron @daily --command kafka.delete \\
      --subject kafka/ID --catch-up once")]
    Create(Create),
    /// List schedules, with their next and their last run
    List(ClientArgs),
    /// Delete a schedule
    Delete(One),
}

#[derive(Debug, Args)]
pub struct Create {
    /// Unique in the organisation
    #[arg(long)]
    name: String,
    /// Minute, hour, day, month, weekday; or @hourly, @daily, @weekly, @monthly, @yearly
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// The time zone of the expression
    #[arg(long, value_name = "NAME", default_value = "UTC")]
    zone: String,
    /// The name of the command
    #[arg(long, value_name = "NAME")]
    command: String,
    /// The object that the command is about
    #[arg(long, value_name = "KIND/ID")]
    subject: Option<String>,
    /// The body of the command, as JSON
    #[arg(long, value_name = "JSON", value_parser = json_value, default_value = "{}")]
    body: Value,
    /// What happens to times that passed while no server ran
    #[arg(long, value_enum, default_value_t = CatchUp::Skip)]
    catch_up: CatchUp,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CatchUp {
    /// Nothing: the next time counts
    Skip,
    /// The command is carried out once for all of them
    Once,
}

fn json_value(text: &str) -> std::result::Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("is not JSON: {e}"))
}

#[derive(Debug, Args)]
pub struct One {
    /// Its id
    id: String,
    #[command(flatten)]
    client: ClientArgs,
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::Create(verb) => {
                let mut client = Client::new(&verb.client)?;
                let created = client.post(client.url(PATH, &[]), Some(&verb.request())).await?;
                output::print(&rows(&verb.client, &created, &client))
            }
            Verb::List(args) => {
                let mut client = Client::new(&args)?;
                let query =
                    [("kind", Some("schedule".to_owned())), ("limit", Some(PAGE_MAX.to_string()))];
                let url = client.url("/api/v1/objects", &query);
                let list: Value = client.get(url).await?;
                let none = list["objects"].as_array().is_none_or(Vec::is_empty);
                if none && args.output == Format::Table {
                    output::say("there are no schedules");
                    return Ok(());
                }
                output::print(&rows(&args, &list["objects"], &client))
            }
            Verb::Delete(one) => {
                let mut client = Client::new(&one.client)?;
                let id = one.id.strip_prefix("schedule/").unwrap_or(&one.id);
                client.delete(client.url(&format!("{PATH}/{id}"), &[])).await?;
                output::say(&format!("schedule/{id} is deleted"));
                Ok(())
            }
        }
    }
}

impl Create {
    fn request(&self) -> Value {
        let catch_up = match self.catch_up {
            CatchUp::Skip => "skip",
            CatchUp::Once => "once",
        };
        let mut command = json!({ "type": self.command, "body": self.body });
        if let Some(subject) = &self.subject {
            command["subject"] = json!(subject);
        }
        json!({
            "name": self.name,
            "cron": self.cron,
            "zone": self.zone,
            "catch_up": catch_up,
            "command": command,
        })
    }
}

fn rows(args: &ClientArgs, schedules: &Value, client: &Client) -> String {
    let now = client.ambient.now();
    let head = ["KEY", "NAME", "CRON", "ZONE", "COMMAND", "NEXT", "LAST"];
    output::render(args.output, schedules, &head, &|one| {
        let (spec, status) = (&one["spec"], &one["status"]);
        let last = &status["last"];
        let last = if last.is_null() {
            String::new()
        } else {
            format!("{} ({})", text(&last["result"]), ago(&last["at"], now))
        };
        vec![
            text(&one["key"]),
            text(&one["name"]),
            text(&spec["cron"]),
            text(&spec["zone"]),
            text(&spec["command"]["type"]),
            ago(&status["next"], now),
            last,
        ]
    })
}
