//! Settings of the HTTP server: limits, timeouts, TLS, CORS.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::{Error, Result};

/// The longest body of an agent's report, which grows with what the agent runs: about 50,000
/// instances.
pub const REPORT_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Agents' reports may have 16 MiB.
    pub body_bytes_max: usize,
    /// The total size of the names and values of a request's headers.
    pub header_bytes_max: usize,
    /// Until the response begins. Long polls and streams have limits of their own.
    pub request_timeout_s: u64,
    /// How long a client may take to send its headers, and how long a connection may idle. A body
    /// may pause for at most this long, and at most for half of `request_timeout_s`.
    pub header_timeout_s: u64,
    /// Concurrent requests; more get a 503 with `Retry-After`.
    pub concurrency_max: usize,
    /// Open connections; more wait in the listener's backlog.
    pub connections_max: usize,
    /// Requests per second of one principal, on average. 0: no limit.
    pub rate_per_s: u32,
    /// Requests that one principal may send at once, after a pause.
    pub rate_burst: u32,
    /// How long open requests may take to end on shutdown.
    pub drain_s: u64,
    pub tls: Option<Tls>,
    /// Origins whose pages may call this server, for every route; `*` allows all. Empty: none.
    pub cors_origins: Vec<String>,
    /// The URL under which clients reach this server, if it is not where it listens.
    pub public_url: Option<Url>,
    /// Whether `/metrics` needs no token.
    pub metrics_public: bool,
}

/// PEM files. They are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            body_bytes_max: 1 << 20,
            header_bytes_max: 32 << 10,
            request_timeout_s: 30,
            header_timeout_s: 30,
            concurrency_max: 1024,
            connections_max: 16 << 10,
            rate_per_s: 2000,
            rate_burst: 4000,
            drain_s: 20,
            tls: None,
            cors_origins: Vec::new(),
            public_url: None,
            metrics_public: true,
        }
    }
}

impl Config {
    /// Rejects invalid settings by the name of the field.
    pub fn check(&self) -> Result<()> {
        let positive = [
            ("http.body_bytes_max", self.body_bytes_max as u64),
            ("http.request_timeout_s", self.request_timeout_s),
            ("http.header_timeout_s", self.header_timeout_s),
            ("http.concurrency_max", self.concurrency_max as u64),
            ("http.connections_max", self.connections_max as u64),
        ];
        if let Some((field, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(Error::invalid(field, "must be at least 1"));
        }
        if self.header_bytes_max < 1024 {
            return Err(Error::invalid("http.header_bytes_max", "must be at least 1024"));
        }
        if self.rate_per_s > 0 && self.rate_burst == 0 {
            return Err(Error::invalid("http.rate_burst", "must be at least 1 with a rate"));
        }
        Ok(())
    }

    pub(super) fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_s)
    }

    /// Shorter than the request timeout, so that a client that stops sending gets its own error.
    pub(super) fn body_pause_max(&self) -> Duration {
        self.header_timeout().min(self.request_timeout() / 2)
    }

    pub(super) fn header_timeout(&self) -> Duration {
        Duration::from_secs(self.header_timeout_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_a_zero_is_rejected_by_name() {
        Config::default().check().unwrap();
        let config = Config { concurrency_max: 0, ..Config::default() };
        let message = config.check().unwrap_err().to_string();
        assert_eq!(message, "http.concurrency_max: must be at least 1");
    }
}
