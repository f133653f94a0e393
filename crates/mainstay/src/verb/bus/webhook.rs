//! `mainstay bus webhook …`: the events of an organisation to a URL.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{PATH, filter, find};
use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, Format, text};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a webhook: the events of your organisation are posted to a URL, signed
    #[command(after_help = "\
The secret of the signatures is shown once. --kind and --type can be repeated; a type may end with
`*`. Addresses of private networks are refused.

Examples:
  mainstay bus webhook create builds --url https://example.com/hooks
  mainstay bus webhook create kafkas --url https://example.com/hooks --kind kafka \\
      --type mainstay.kafka.ready --type 'mainstay.kafka.delet*' --mode binary")]
    Create(Create),
    /// Delete a webhook, or a sink that is no longer configured
    #[command(after_help = "\
Examples:
  mainstay bus webhook delete builds")]
    Delete {
        /// Its name or id
        sink: String,
        #[command(flatten)]
        client: ClientArgs,
    },
}

#[derive(Debug, Args)]
pub struct Create {
    /// Unique in the organisation
    name: String,
    /// Where events are posted to
    #[arg(long)]
    url: String,
    /// Only events of objects of this kind
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// How an event is written as a CloudEvent
    #[arg(long, value_enum, default_value_t = Mode::Structured)]
    mode: Mode,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// The whole event is the body
    Structured,
    /// The body is the data; the attributes are headers
    Binary,
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::Create(verb) => {
                let mut client = Client::new(&verb.client)?;
                let created = client.post(client.url(PATH, &[]), Some(&verb.request())).await?;
                print_with_secret(verb.client.output, &created)
            }
            Verb::Delete { sink, client: args } => {
                let mut client = Client::new(&args)?;
                let sink = find(&mut client, &sink).await?;
                let (id, name) = (text(&sink["id"]), text(&sink["name"]));
                client.delete(client.url(&format!("{PATH}/{id}"), &[])).await?;
                output::say(&format!("{name} (sink/{id}) is deleted"));
                Ok(())
            }
        }
    }
}

impl Create {
    fn request(&self) -> Value {
        let mode = match self.mode {
            Mode::Structured => "structured",
            Mode::Binary => "binary",
        };
        json!({
            "name": self.name,
            "url": self.url,
            "filter": { "kinds": self.kinds, "types": self.types },
            "mode": mode,
        })
    }
}

/// Prints a webhook with its secret, which is not shown again.
fn print_with_secret(format: Format, webhook: &Value) -> Result<()> {
    let head = ["KEY", "NAME", "MODE", "URL", "FILTER"];
    output::print(&output::render(format, webhook, &head, &|one| {
        let spec = &one["spec"];
        let filter = filter(&spec["filter"]);
        vec![text(&one["key"]), text(&one["name"]), text(&spec["mode"]), text(&spec["url"]), filter]
    }))?;
    if format == Format::Table {
        output::print(&format!("\nsecret  {}", text(&webhook["secret"])))?;
        output::say(
            "Keep the secret: it is not shown again. A receiver verifies each request with it: the\n\
             header webhook-signature is `v1,` and the base64 of HMAC-SHA256 over\n\
             `WEBHOOK-ID.WEBHOOK-TIMESTAMP.BODY`, whose key is the base64 after `whsec_`. Libraries of\n\
             Standard Webhooks do that; docs/bus.md has it in Python.",
        );
    }
    Ok(())
}
