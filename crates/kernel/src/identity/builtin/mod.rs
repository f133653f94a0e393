//! The built-in issuer, for installations without another: one signing key, a discovery document,
//! and the client-credentials, authorization-code, refresh-token and device grants.
//!
//! Access tokens are self-contained. Refresh tokens are of a session in the store, which ends when
//! the person signs out, when a token is used twice, and when it expires.

mod account;
mod authorize;
mod clients;
mod code;
mod device;
mod grants;
mod key;
mod oauth;
mod once;
mod page;
mod routes;
mod session;
mod signer;
#[cfg(test)]
mod tests;

pub use clients::{ClientGrant, ClientSource, Clients};
pub use key::KEY_FILE;
pub use routes::routes;
pub use signer::{CLI_CLIENT, Kind, Signer};

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::claims::ClaimMapper;
use super::config::{Algorithm, ClaimNames, Config};
use super::issuer::Issuer;
use super::keys::Keys;
use crate::outbound::Outbound;
use crate::rate_limit::RateLimiter;
use crate::{Ambient, Result, Timestamp};

/// Limits how often something is done, by a name.
struct Limiter(Mutex<RateLimiter<String>>);

impl Limiter {
    /// Allows `burst` at once, and one more every `every_s`.
    fn new(burst: u32, every_s: f64) -> Limiter {
        Limiter(Mutex::new(RateLimiter::new(1.0 / every_s, burst)))
    }

    fn allow(&self, name: &str, now: Timestamp) -> bool {
        self.0.lock().take(name.to_owned(), now).is_ok()
    }
}

/// The polling interval of a device, in seconds.
const POLL_S: i64 = 5;

pub struct Builtin {
    signer: Signer,
    issuer: Arc<Issuer>,
    clients: Clients,
    client_source: OnceLock<Arc<dyn ClientSource>>,
    access_token: Duration,
    refresh_token: Duration,
    device_code: Duration,
    clock_skew_s: i64,
    /// Limits all device grants together: beginning one needs no token.
    device_starts: Limiter,
    /// Limits one address, so that it cannot exhaust the total.
    device_starts_each: Limiter,
    /// Of one grant.
    device_polls: Limiter,
    /// Of one person, against guessing codes.
    device_decisions: Limiter,
    ambient: Ambient,
}

impl Builtin {
    pub(super) fn start(
        config: &Config,
        data_dir: &Path,
        public_url: &str,
        ambient: Ambient,
        outbound: &Outbound,
    ) -> Result<Builtin> {
        let signer = Signer::open(config, data_dir, public_url, ambient.clone())?;
        let url = signer.issuer().to_owned();
        let issuer = Issuer {
            keys: Keys::fixed(&url, signer.public_key().clone(), ambient.clone()),
            url,
            audience: None,
            algorithms: vec![Algorithm::ES256],
            reader: ClaimMapper {
                names: ClaimNames::default(),
                prefix: String::new(),
                admin_roles: None,
            },
            verifications: AtomicU64::new(0),
        };
        Ok(Builtin {
            signer,
            issuer: Arc::new(issuer),
            clients: Clients::new(&config.clients, outbound)?,
            client_source: OnceLock::new(),
            access_token: Duration::from_secs(config.access_token_s),
            refresh_token: Duration::from_secs(config.refresh_token_s),
            device_code: Duration::from_secs(config.device_code_s),
            clock_skew_s: i64::try_from(config.clock_skew_s).unwrap_or(0),
            device_starts: Limiter::new(30, 2.0),
            device_starts_each: Limiter::new(5, 10.0),
            device_polls: Limiter::new(1, POLL_S as f64),
            device_decisions: Limiter::new(5, 10.0),
            ambient,
        })
    }

    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Sets the source of clients that are not in the configuration. The first call wins.
    pub fn set_clients(&self, source: Arc<dyn ClientSource>) {
        let _ = self.client_source.set(source);
    }

    pub(super) fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }
}
