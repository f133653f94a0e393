//! The data sources of an organisation. Those of the server's configuration are shown, too.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::error::{Error, Result};
use crate::output::{self, Format, text};

const PATH: &str = "/api/v1/advisor/datasources";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the data sources that your jobs can read
    List(ClientArgs),
    /// Add a data source, or replace one: it must answer first
    #[command(after_help = "\
Secrets are read from files here, sent to the server, and sealed there. Addresses must be public
unless the server's configuration allows others.

Examples:
  mainstay advise datasource put prod --url https://prometheus.example
  mainstay advise datasource put prod --url https://thanos.example --token-file token
  mainstay advise start --datasource prod --wait")]
    Put(Box<Put>),
    /// Delete a data source; what it has recommended stays
    Delete(Delete),
}

#[derive(Debug, Args)]
pub struct Put {
    /// Unique in your organisation
    name: String,
    /// The Prometheus, Thanos or Mimir, up to but without `/api/v1`
    #[arg(long, value_name = "URL")]
    url: String,
    /// A file with a bearer token
    #[arg(long, value_name = "FILE", group = "as_whom")]
    token_file: Option<PathBuf>,
    /// A user name
    #[arg(long, requires = "password_file", group = "as_whom")]
    username: Option<String>,
    /// A file with that user's password
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,
    /// A file with an API key
    #[arg(long, value_name = "FILE", group = "as_whom")]
    api_key_file: Option<PathBuf>,
    /// The header that carries the API key [default: Authorization]
    #[arg(long, value_name = "NAME", requires = "api_key_file")]
    header: Option<String>,
    /// A file with the authority to trust [default: the system's]
    #[arg(long, value_name = "FILE")]
    tls_ca_file: Option<PathBuf>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct Delete {
    name: String,
    #[command(flatten)]
    client: ClientArgs,
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::List(args) => list(&args).await,
            Verb::Put(verb) => verb.run().await,
            Verb::Delete(verb) => {
                let mut client = Client::new(&verb.client)?;
                client.delete(client.url(&format!("{PATH}/{}", verb.name), &[])).await?;
                output::say(&format!("data source {} is deleted", verb.name));
                Ok(())
            }
        }
    }
}

async fn list(args: &ClientArgs) -> Result<()> {
    let mut client = Client::new(args)?;
    let found: Value = client.get(client.url("/datasources", &[])).await?;
    let none = found["datasources"].as_array().is_none_or(Vec::is_empty);
    if none && args.output == Format::Table {
        let program = output::program();
        output::say(&format!(
            "there are no data sources; `{program} advise datasource put NAME --url URL` adds one, \
             and so does advisor.datasources in the server's configuration"
        ));
        return Ok(());
    }
    output::print(&rows(args.output, &found["datasources"]))
}

fn rows(format: Format, found: &Value) -> String {
    output::render(format, found, &["NAME", "PROVIDER", "SIGN-IN", "URL"], &|one| {
        vec![
            text(&one["name"]),
            text(&one["provider"]),
            text(&one["authenticationConfig"]["type"]).to_lowercase(),
            text(&one["url"]),
        ]
    })
}

impl Put {
    async fn run(&self) -> Result<()> {
        let mut source = json!({ "url": self.url });
        if let Some(authentication) = self.authentication()? {
            source["authentication"] = authentication;
        }
        if let Some(file) = &self.tls_ca_file {
            source["tls"] = json!({ "ca": read(file)? });
        }
        let mut client = Client::new(&self.client)?;
        let url = client.url(&format!("{PATH}/{}", self.name), &[]);
        let made = client.put(url, &source).await?;
        output::print(&rows(self.client.output, &made))
    }

    fn authentication(&self) -> Result<Option<Value>> {
        let secret = |file: &PathBuf| read(file).map(|text| text.trim().to_owned());
        if let Some(file) = &self.token_file {
            return Ok(Some(json!({ "type": "bearer", "token": secret(file)? })));
        }
        if let (Some(username), Some(file)) = (&self.username, &self.password_file) {
            let password = secret(file)?;
            return Ok(Some(json!({
                "type": "basic", "username": username, "password": password,
            })));
        }
        let Some(file) = &self.api_key_file else { return Ok(None) };
        let mut authentication = json!({ "type": "api_key", "key": secret(file)? });
        if let Some(header) = &self.header {
            authentication["header"] = header.as_str().into();
        }
        Ok(Some(authentication))
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file)
        .map_err(|e| Error::file(format!("{} cannot be read", file.display()), e))
}
