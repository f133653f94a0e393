//! Parses the URL of a PostgreSQL server and connects to it.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{Error, Result};

/// A replica that is paused or cut off within a transaction would keep its locks, and block all
/// others, for as long as its connection lasts. PostgreSQL ends the transaction after this
/// long; nothing uncommitted was acknowledged. Well below a lease.
const STALLED_MAX: &str = "-c idle_in_transaction_session_timeout=5s";

/// The settings, and the URL for people: without the password.
pub fn parse(url: &str) -> Result<(Config, String)> {
    let mut config: Config = url
        .parse()
        .map_err(|error| Error::invalid("database", format!("is not a PostgreSQL URL: {error}")))?;
    config.application_name("mainstay").connect_timeout(Duration::from_secs(5));
    let options = config.get_options().map(|own| format!("{STALLED_MAX} {own}"));
    config.options(options.as_deref().unwrap_or(STALLED_MAX));
    config.keepalives_idle(Duration::from_secs(30)).tcp_user_timeout(Duration::from_secs(30));
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        _ => "localhost".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let place = format!("{host}:{port}/{}", config.get_dbname().unwrap_or_default());
    Ok((config, place))
}

/// TLS as the URL's `sslmode` asks for; certificates are checked against the system's roots.
pub fn tls() -> Result<MakeRustlsConnect> {
    use rustls_platform_verifier::BuilderVerifierExt;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier())
        .map_err(|error| Error::internal("setting up TLS for PostgreSQL", error))?;
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

pub fn pool(config: Config, size: usize, wait: Duration) -> Result<Pool> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_config(config, tls()?, recycling))
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(wait))
        .create_timeout(Some(wait))
        .build()
        .map_err(|error| Error::internal("the pool of PostgreSQL connections", error))
}
