//! The one way out to other systems: timeout, circuit breaker, retry, span, metric, redaction.
//!
//! [`Outbound::target`] names the other side; [`Target::http`] calls it over HTTP, and
//! [`Target::call`] does the same for any other protocol. Nobody else holds an HTTP client.

pub mod breaker;
mod call;
mod http;
pub mod redact;
mod ssrf;

pub use call::{Delivery, Failure, Target};
pub use http::{body, json};
pub use ssrf::{EgressPolicy, Lookup, why_private};

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use url::Url;

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
    /// Hosts, addresses and networks that URLs of users may lead to although they are not public.
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

/// How one attempt went, for the metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation<'a> {
    /// From code or configuration, never from a request: safe as a label.
    pub system: &'a str,
    pub operation: &'a str,
    pub attempt: u32,
    /// `None`: it worked.
    pub failure: Option<Delivery>,
    pub took: Duration,
    /// The breaker after it.
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
    /// Made when first needed: reading the system's certificates takes a while.
    client: OnceLock<reqwest::Client>,
    egress_client: OnceLock<reqwest::Client>,
}

impl Outbound {
    pub fn new(config: Config, ambient: Ambient, observe: Observe) -> Result<Outbound> {
        Outbound::with_lookup(config, ambient, observe, ssrf::system_lookup())
    }

    /// As [`Outbound::new`], for tests that decide what names mean.
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

    /// The clock and the randomness that calls go by.
    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    /// A URL that a user gave us in `field`, if it may be called. Call it through
    /// [`Target::guard_ssrf`]: what was checked here is checked again there.
    pub async fn user_url(&self, field: &str, url: &str) -> Result<Url> {
        self.0.egress.check(field, url).await
    }
}

/// Makes ring the process's cryptography for TLS. Harmless if it is already.
pub fn install_tls() {
    // The error says that a provider is there; ours is the only one this binary has.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
