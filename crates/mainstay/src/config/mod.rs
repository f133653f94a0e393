//! The configuration: one struct, filled from a TOML file, then the environment, then flags.
//!
//! Every section is a struct with a default for each key, so that an empty file is a whole
//! configuration. [`load()`] says where each value came from, and refuses what it does not know.

mod kruize;
mod load;
mod problem;
mod show;
mod source;

use std::net::SocketAddr;
use std::path::PathBuf;

use kernel::secret::SecretSource;
use serde::{Deserialize, Serialize, Serializer};

pub use load::{Loaded, load};
pub use problem::{Problem, Problems};
pub use show::{default_document, rows, toml_text};
pub use source::{Origin, Setting, Sources};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the server listens.
    pub listen: SocketAddr,
    /// Where it keeps its data, and its signing key.
    pub data_dir: PathBuf,
    /// The key that sealed data is encrypted with; replicas must share it. Default: `installation-key`
    /// in the data directory, created on first start.
    pub key_file: Option<PathBuf>,
    /// The URL of a PostgreSQL. Empty: SQLite in the data directory.
    pub database: Database,
    pub driver: kernel::driver::Config,
    pub retention: kernel::driver::Retention,
    pub audit: kernel::log::AuditConfig,
    pub http: kernel::http::Config,
    pub identity: kernel::identity::Config,
    pub telemetry: kernel::telemetry::Config,
    pub outbound: kernel::outbound::Config,
    /// Where secrets of the form `{ vault = "MOUNT/PATH#FIELD" }` are.
    pub vault: kernel::secret::vault::Config,
    pub fleet: fleet::Config,
    /// Where events go, and where commands come from, besides this server's own API.
    pub bus: bus::Config,
    /// Right-sizing: what is read, and how much at once.
    pub advisor: advisor::Config,
}

/// The default address of servers and clients.
pub const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: LISTEN_DEFAULT,
            data_dir: "~/.local/share/mainstay".into(),
            key_file: None,
            database: Database::default(),
            driver: Default::default(),
            retention: Default::default(),
            audit: Default::default(),
            http: Default::default(),
            identity: Default::default(),
            telemetry: Default::default(),
            outbound: Default::default(),
            vault: Default::default(),
            fleet: Default::default(),
            bus: Default::default(),
            advisor: Default::default(),
        }
    }
}

/// A database URL. Shows itself without its password.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Database(SecretSource);

impl Database {
    /// The URL with its password, for the one who connects; `None` for SQLite.
    pub fn url(&self) -> kernel::Result<Option<String>> {
        let url = self.0.read("database")?.expose().clone();
        Ok(Some(url).filter(|url| !url.is_empty()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const HIDDEN: &str = "redacted";
        let SecretSource::Value(url) = &self.0 else { return write!(f, "{:?}", self.0) };
        let Ok(mut url) = url::Url::parse(url.expose()) else {
            // What cannot be read may hide a password anywhere.
            return f.write_str(if self.0.is_empty() { "" } else { HIDDEN });
        };
        if url.password().is_some() && url.set_password(Some(HIDDEN)).is_err() {
            return f.write_str(HIDDEN);
        }
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        if pairs.iter().any(|(key, _)| key.contains("password")) {
            let shown =
                |key: &str, value| if key.contains("password") { HIDDEN.into() } else { value };
            let pairs = pairs.into_iter().map(|(key, value)| (shown(&key, value), key));
            url.query_pairs_mut().clear().extend_pairs(pairs.map(|(value, key)| (key, value)));
        }
        f.write_str(url.as_str())
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Database {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            SecretSource::Value(_) => serializer.collect_str(self),
            source => source.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_never_shows_its_password() {
        let cases = [
            ("postgres://u:hunter2@db/x", "postgres://u:redacted@db/x"),
            ("postgres://u@db/x?password=hunter2&a=b", "postgres://u@db/x?password=redacted&a=b"),
            ("postgres://u@db/x", "postgres://u@db/x"),
            ("not a url hunter2", "redacted"),
            ("", ""),
        ];
        for (url, shown) in cases {
            let database = Database(url.into());
            assert_eq!(database.to_string(), shown);
            assert_eq!(format!("{database:?}"), shown);
            assert_eq!(serde_json::to_value(&database).unwrap(), shown);
            assert_eq!(database.url().unwrap().unwrap_or_default(), url);
        }
    }
}
