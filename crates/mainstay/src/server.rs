//! Puts the kernel's parts together: the one place that knows them all. Everything else in this
//! crate asks here for a store, a token or a running server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Ambient, Domain, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Loaded};
use crate::error::{Error, Result};
use crate::output::say;

/// Runs a server until it is told to stop.
pub async fn run(loaded: Loaded, domains: Vec<Box<dyn Domain>>) -> Result<()> {
    let stop = CancellationToken::new();
    tokio::select! {
        ended = compose(&loaded, domains, stop.clone()) => ended,
        forced = signals(stop.clone()) => forced,
    }
}

/// Composition: each part is made from its section of the configuration and from the parts
/// before it, and all of them end when `stop` is cancelled.
async fn compose(
    loaded: &Loaded,
    domains: Vec<Box<dyn Domain>>,
    stop: CancellationToken,
) -> Result<()> {
    let config = &loaded.config;
    // 1. telemetry: config.telemetry
    let _ambient = Ambient::system();
    // 2. store: migrated when it is opened
    let store = open_store(config).await?;
    // 3. outbound: config.outbound
    // 4. identity: config.identity, the data directory, outbound
    // 5. App::new(Parts { store, ambient, identity, outbound, metrics })
    // 6. driver: config.driver, the domains' workers, `stop`; config.retention
    // 7. http: bind config.listen first, so that the message below is true
    say(&greeting(config, &store.describe(), &config.listen.to_string(), domains.len()));
    // 8. http::serve(listener, config.http, app, routes of all domains, stop)
    stop.cancelled().await;
    // 9. wait for the driver's tracker, then for telemetry to be flushed
    Ok(())
}

/// Opens the store that the configuration names, and brings it to this version's tables.
pub async fn open_store(config: &Config) -> Result<Arc<dyn Store>> {
    let _ = config.database.expose();
    Err(kernel::Error::internal("the store", "it is not part of this build yet").into())
}

/// The SQL of all migrations, for those who read before they run.
pub fn migrations(config: &Config) -> Result<String> {
    let _ = config.database.expose();
    Err(kernel::Error::internal("migrations", "they are not part of this build yet").into())
}

/// What a token is to say.
pub struct Claims {
    pub subject: String,
    pub org: String,
    pub roles: Vec<String>,
    pub agent_of: Option<String>,
    pub good_for: Duration,
    /// A refresh token instead of an access token.
    pub offline: bool,
}

/// Signs a token with the built-in issuer's key in the data directory.
pub fn issue_token(config: &Config, claims: Claims) -> Result<String> {
    let _ = (&config.data_dir, claims);
    Err(kernel::Error::internal("the built-in issuer", "it is not part of this build yet").into())
}

/// How long a token lasts that a client on the server's machine makes for itself.
pub const LOCAL_TOKEN_FOR: Duration = Duration::from_secs(15 * 60);

/// An admin's token for whoever can read the signing key anyway.
pub fn local_token(data_dir: &Path) -> Result<String> {
    let config = Config { data_dir: data_dir.into(), ..Config::default() };
    let claims = Claims {
        subject: crate::verb::token::user(),
        org: "local".into(),
        roles: vec!["admin-full".into()],
        agent_of: None,
        good_for: LOCAL_TOKEN_FOR,
        offline: false,
    };
    issue_token(&config, claims)
}

/// What a person who has just started a server wants to know.
fn greeting(config: &Config, store: &str, listen: &str, domains: usize) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let data_dir = config.data_dir.display();
    // A context remembers the address; without one, a client looks at the usual place.
    let flags = [
        (config.listen != Config::default().listen).then(|| format!(" --listen {listen}")),
        Some(format!(" --data-dir {data_dir}")),
    ];
    let flags: String = flags.into_iter().flatten().collect();
    format!(
        "\
Mainstay {version} listens on http://{listen} and manages {domains} domains.
  data   {data_dir}
  store  {store}
  docs   http://{listen}/api/v1/doc

Try in another terminal:
  mainstay login --local{flags}
  mainstay work
  mainstay events --follow

Ctrl-C stops it when what is under way is done; twice, at once."
    )
}

/// The first signal asks everyone to finish, the second does not ask. Never ends otherwise.
async fn signals(stop: CancellationToken) -> Result<()> {
    let failed = |e| Error::file("signals cannot be received", e);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    next().await;
    say("stopping: what is under way is being finished; once more to stop at once");
    stop.cancel();
    next().await;
    Err(Error::TimedOut("stopped at once: what was under way goes on at the next start".into()))
}
