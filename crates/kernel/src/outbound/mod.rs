//! The one path for calls to other systems: timeout, circuit breaker, retry, span, metric, redaction;
//! their certificates, and with [`crate::secret`] their credentials.
//!
//! [`Outbound::target`] names the other side; [`Target::http`] calls it over HTTP, and
//! [`Target::call`] does the same for any other protocol. No other module has an HTTP client.

pub mod breaker;
mod call;
mod http;
pub mod redact;
mod ssrf;
mod tls;
pub mod webhook;

pub use call::{Delivery, Failure, Target};
pub(crate) use http::Later;
pub use http::{body, json};
pub use ssrf::{EgressPolicy, Lookup, why_private};
pub use tls::{Tls, TlsFiles, TlsValues};

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::secret::Secrets;
use crate::{Ambient, Result};
use breaker::Breaker;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For one attempt, from the first byte sent to the last received.
    pub timeout_ms: u64,
    pub connect_timeout_ms: u64,
    pub attempts_max: u32,
    /// The pause after the first failed attempt; doubles with each.
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
    pub breaker: breaker::Config,
    /// Hosts, addresses and networks that users' URLs may use although they are not public.
    pub allow_targets: Vec<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            timeout_ms: 10_000,
            connect_timeout_ms: 3_000,
            attempts_max: 3,
            backoff_ms: 100,
            backoff_max_ms: 5_000,
            breaker: breaker::Config::default(),
            allow_targets: Vec::new(),
        }
    }
}

/// The outcome of one attempt, for metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation<'a> {
    /// From code or configuration, never from a request: safe as a label.
    pub system: &'a str,
    pub operation: &'a str,
    pub attempt: u32,
    /// `None` on success.
    pub failure: Option<Delivery>,
    pub took: Duration,
    /// The breaker's phase after the attempt.
    pub breaker: breaker::Phase,
}

pub type Observe = Arc<dyn Fn(&Observation<'_>) + Send + Sync>;

/// Calls other systems. Cheap to clone.
#[derive(Clone)]
pub struct Outbound(Arc<Inner>);

struct Inner {
    config: Config,
    ambient: Ambient,
    observe: Observe,
    egress: EgressPolicy,
    /// One per name; names come from code and configuration, so there are few.
    breakers: Mutex<HashMap<String, Arc<Mutex<Breaker>>>>,
    /// Created on first use: loading the system's certificates takes a while.
    client: OnceLock<reqwest::Client>,
    egress_client: OnceLock<reqwest::Client>,
    secrets: Secrets,
}

impl Outbound {
    pub fn new(config: Config, ambient: Ambient, observe: Observe) -> Result<Outbound> {
        Outbound::with_lookup(config, ambient, observe, ssrf::system_lookup())
    }

    /// As [`Outbound::new`], with another name resolution for tests.
    pub fn with_lookup(
        config: Config,
        ambient: Ambient,
        observe: Observe,
        lookup: Lookup,
    ) -> Result<Outbound> {
        let egress = EgressPolicy::new(&config.allow_targets, lookup)?;
        Ok(Outbound(Arc::new(Inner {
            config,
            ambient,
            observe,
            egress,
            breakers: Mutex::new(HashMap::new()),
            client: OnceLock::new(),
            egress_client: OnceLock::new(),
            secrets: Secrets::default(),
        })))
    }

    /// The other side. All who use the same name share its breaker.
    pub fn target(&self, name: &str) -> Target {
        let mut breakers = self.0.breakers.lock();
        let breaker = breakers
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Mutex::new(Breaker::new(self.0.config.breaker.clone()))));
        Target::new(self.0.clone(), name, breaker.clone())
    }

    /// Returns the phase of a system's breaker; closed if the system was never called.
    pub fn phase(&self, name: &str) -> breaker::Phase {
        let breaker = self.0.breakers.lock().get(name).cloned();
        breaker.map_or(breaker::Phase::Closed, |breaker| breaker.lock().phase())
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.0.secrets
    }

    /// The clock and randomness of calls.
    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    /// Validates a URL that a user gave in `field`. Call it through
    /// [`Target::guard_ssrf`], which checks again at connect time.
    pub async fn user_url(&self, field: &str, url: &str) -> Result<Url> {
        self.0.egress.check(field, url).await
    }
}

/// Installs ring as the process's TLS provider. Idempotent.
pub fn install_tls() {
    // Fails only if a provider is installed, and ring is the only one in this binary.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
