//! `mainstay service-account …`: credentials for an organisation's programs.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, Format, ago, text};

const PATH: &str = "/api/kafkas_mgmt/v1/service_accounts";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a service account; its secret is shown once
    Create(Create),
    /// List the organisation's service accounts
    List(ClientArgs),
    /// Show a service account
    Get(One),
    /// Give a service account a new secret, which is shown once
    Reset(One),
    /// Delete a service account
    Delete(One),
}

#[derive(Debug, Args)]
pub struct Create {
    /// 1 to 50 lower-case letters, digits and '-'
    #[arg(long)]
    name: String,
    #[arg(long, default_value = "")]
    description: String,
    #[command(flatten)]
    client: ClientArgs,
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
                let body = json!({ "name": verb.name, "description": verb.description });
                let created = client.post(client.url(PATH, &[]), Some(&body)).await?;
                print_with_secret(&verb.client, &created, &client)
            }
            Verb::List(args) => {
                let mut client = Client::new(&args)?;
                let list: Value = client.get(client.url(PATH, &[])).await?;
                if list["items"].as_array().is_none_or(Vec::is_empty)
                    && args.output == Format::Table
                {
                    output::say("there are no service accounts");
                    return Ok(());
                }
                output::print(&rows(&args, &list["items"], &client))
            }
            Verb::Get(one) => {
                let mut client = Client::new(&one.client)?;
                let url = client.url(&format!("{PATH}/{}", one.id), &[]);
                let found: Value = client.get(url).await?;
                output::print(&rows(&one.client, &found, &client))
            }
            Verb::Reset(one) => {
                let mut client = Client::new(&one.client)?;
                let url = client.url(&format!("{PATH}/{}/reset_credentials", one.id), &[]);
                let found = client.post(url, None).await?;
                print_with_secret(&one.client, &found, &client)
            }
            Verb::Delete(one) => {
                let mut client = Client::new(&one.client)?;
                let url = client.url(&format!("{PATH}/{}", one.id), &[]);
                client.delete(url).await?;
                output::say(&format!("{} is deleted", one.id));
                Ok(())
            }
        }
    }
}

/// Prints an account with its secret, which is not shown again.
fn print_with_secret(args: &ClientArgs, account: &Value, client: &Client) -> Result<()> {
    output::print(&rows(args, account, client))?;
    if args.output == Format::Table {
        output::print(&format!("\nclient_id      {}", text(&account["client_id"])))?;
        output::print(&format!("client_secret  {}", text(&account["client_secret"])))?;
        output::say("Keep the secret: it is not shown again.");
    }
    Ok(())
}

fn rows(args: &ClientArgs, accounts: &Value, client: &Client) -> String {
    let now = client.ambient.now();
    let head = ["ID", "NAME", "OWNER", "AGE", "DESCRIPTION"];
    output::render(args.output, accounts, &head, &|one| {
        vec![
            text(&one["id"]),
            text(&one["name"]),
            text(&one["owner"]),
            ago(&one["created_at"], now),
            text(&one["description"]),
        ]
    })
}
