//! `mainstay login | logout | context`: the known servers and their credentials.

use std::path::PathBuf;

use kernel::Ambient;
use kernel::identity::builtin::CLI_CLIENT;

use crate::cli::ConfigArgs;
use crate::client::context::{Context, Contexts, Refresh};
use crate::client::{self, oauth};
use crate::error::Result;
use crate::local::{self, Local};
use crate::output;
use crate::progress::with_progress;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay login --local                         the server on this machine, with its own key
  mainstay login --server https://mainstay.example
  mainstay login --server https://mainstay.example --token OFFLINE --context production
  mainstay login --server https://mainstay.example --issuer https://sso.example/realms/main")]
pub struct Login {
    /// The server's address
    #[arg(long, value_name = "URL", env = "MAINSTAY_SERVER", hide_env_values = true)]
    server: Option<String>,
    /// A name for it, to have several
    #[arg(long, value_name = "NAME", default_value = "default")]
    context: String,
    /// An offline (refresh) token instead of a browser
    #[arg(long, value_name = "OFFLINE", conflicts_with = "local")]
    token: Option<String>,
    /// The server runs here and its data directory can be read: be its admin
    #[arg(long)]
    local: bool,
    /// The OIDC issuer [default: the server]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The client id of this program at the issuer
    #[arg(long, value_name = "ID", default_value = CLI_CLIENT)]
    client_id: String,
    /// Certificates to trust besides the system's, PEM
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Login {
    pub async fn run(self) -> Result<()> {
        let mut context = Context { ca_file: self.ca_file.clone(), ..Context::default() };
        if self.local {
            let config = self.config.load()?.config;
            let local = Local::of(&config);
            // Signed once now, so that a missing key is reported here and not at the next command.
            local.token()?;
            let found = || local::address(&config.data_dir).unwrap_or_default();
            context.server = self.server.unwrap_or_else(found);
            context.local = Some(local);
        } else {
            let default = || format!("http://{}", crate::config::LISTEN_DEFAULT);
            context.server = self.server.clone().unwrap_or_else(default);
            client::server_url(&context.server)?;
            self.sign_in(&mut context).await?;
        }
        remember(&self.context, context)
    }

    async fn sign_in(&self, context: &mut Context) -> Result<()> {
        let http = client::http(self.ca_file.clone())?;
        let issuer = self.issuer.as_deref().unwrap_or(&context.server);
        let found = oauth::discover(&http, issuer).await?;
        let refresh = |token: String| Refresh {
            token,
            token_endpoint: found.token_endpoint.clone(),
            revocation_endpoint: found.revocation_endpoint.clone(),
            client_id: self.client_id.clone(),
        };
        let grant = match &self.token {
            Some(offline) => {
                let refresh = refresh(offline.clone());
                let grant = oauth::refresh(&http, &refresh).await?;
                context.refresh = Some(refresh);
                grant
            }
            None => {
                let endpoint = found.device_authorization_endpoint.as_deref().ok_or_else(|| {
                    kernel::Error::invalid(
                        "issuer",
                        format!("{issuer} offers no device grant; use --token OFFLINE"),
                    )
                })?;
                let code = oauth::device_code(&http, endpoint, &self.client_id).await?;
                let url = code.verification_uri_complete.as_ref().unwrap_or(&code.verification_uri);
                output::say(&format!("Open {url}\nand confirm this code: {}", code.user_code));
                let confirmed = oauth::poll_device(
                    &http,
                    &found.token_endpoint,
                    &self.client_id,
                    &code,
                    tokio::time::sleep,
                );
                let mut grant = with_progress("waiting for confirmation", confirmed).await?;
                context.refresh = grant.refresh_token.take().map(refresh);
                grant
            }
        };
        grant.store(context, Ambient::system().now());
        Ok(())
    }
}

fn remember(name: &str, context: Context) -> Result<()> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::read(&path)?;
    let server = context.server.clone();
    contexts.contexts.insert(name.into(), context);
    contexts.current = name.into();
    contexts.write(&path)?;
    output::say(&format!("signed in to {server} (context `{name}`, kept in {})", path.display()));
    Ok(())
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server ends the session: its refresh token is not good any more. An access token that was copied
stays valid until it expires.

Examples:
  mainstay logout
  mainstay logout production")]
pub struct Logout {
    /// Which [default: the current one]
    #[arg(value_name = "NAME")]
    context: Option<String>,
}

impl Logout {
    pub async fn run(self) -> Result<()> {
        let path = Contexts::path()?;
        let mut contexts = Contexts::read(&path)?;
        let Some((name, context)) = contexts.pick(self.context.as_deref())? else {
            output::say("there is no context to remove");
            return Ok(());
        };
        contexts.contexts.remove(&name);
        if contexts.current == name {
            contexts.current = String::new();
        }
        contexts.write(&path)?;
        output::say(&format!("context `{name}` is removed"));
        if let Some(refresh) = &context.refresh {
            let http = client::http(context.ca_file)?;
            oauth::revoke(&http, refresh).await?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay context                    which there are; * marks the current one
  mainstay context production         use this one from now on
  mainstay work --context staging     use this one once")]
pub struct ContextVerb {
    /// The one to use from now on
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl ContextVerb {
    pub fn run(self) -> Result<()> {
        let path = Contexts::path()?;
        let mut contexts = Contexts::read(&path)?;
        if let Some(name) = self.name {
            contexts.pick(Some(&name))?;
            contexts.current = name;
            return contexts.write(&path);
        }
        if contexts.contexts.is_empty() {
            output::say(&format!("there is none; `{} login` makes one", output::program()));
            return Ok(());
        }
        let row = |(name, context): (&String, &Context)| {
            let mark = if *name == contexts.current { "*" } else { "" };
            let by = match (&context.local, &context.refresh) {
                (Some(_), _) => format!("this machine's key, as {}", local::user()),
                (None, Some(_)) => "a refresh token".into(),
                (None, None) => "an access token".into(),
            };
            vec![mark.into(), name.clone(), context.server.clone(), by]
        };
        let rows = contexts.contexts.iter().map(row);
        output::print(&output::table(&["", "CONTEXT", "SERVER", "BY"], rows))
    }
}
