//! Authentication and authorisation.
//!
//! A bearer token is parsed (`token`), its issuer is found by name, its
//! signature verified with that issuer's keys (`keys`), and its claims mapped to a [`Principal`]
//! (`claims`). Verified tokens are cached (`cache`). [`builtin`] is an issuer of our
//! own, for installs that have no other.

mod action;
mod attempts;
pub mod builtin;
mod cache;
mod claims;
mod config;
mod issuer;
mod jwk;
mod keys;
mod principal;
mod token;

pub use action::Action;
pub use builtin::{ClientGrant, ClientSource, routes};
pub use config::{AdminRoles, Algorithm, ClaimNames, Client, Config, IssuerConfig};
pub use principal::{ADMIN_ROLES, Principal, Visibility};
pub use token::TokenProblem;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::kind::{KindInfo, Presenter};
use crate::outbound::Outbound;
use crate::{Ambient, Error, Result, Store};
use attempts::Attempts;
use builtin::Builtin;
use cache::{Cache, token_hash};
use claims::ClaimMapper;
use issuer::Issuer;
use keys::Keys;
use token::{TOKEN_BYTES_MAX, Unverified, refused};

/// The kinds that the kernel keeps for itself. For admins.
pub fn kinds() -> Vec<KindInfo> {
    let hidden = |name: &str, plural: &str| KindInfo::new(name, plural, Presenter::Hidden);
    vec![
        hidden("session", "sessions"),
        hidden("account", "accounts"),
        hidden("installation", "installations"),
    ]
}

const SESSIONS_EVERY: Duration = Duration::from_secs(3600);

/// Turns bearer tokens into principals.
pub struct Identity {
    /// By URL without a trailing slash.
    issuers: HashMap<String, Arc<Issuer>>,
    builtin: Option<Builtin>,
    cache: Cache,
    attempts: Attempts,
    clock_skew: Duration,
    keys_refresh: Duration,
    ambient: Ambient,
}

impl Identity {
    /// Reads or creates the built-in issuer's key. Keys of other issuers are fetched when the first
    /// token needs them, so that start-up does not depend on them.
    pub fn start(
        config: Config,
        data_dir: &Path,
        public_url: &str,
        ambient: Ambient,
        outbound: &Outbound,
    ) -> Result<Identity> {
        config.check()?;
        let mut issuers: HashMap<String, Arc<Issuer>> = config
            .issuers
            .iter()
            .enumerate()
            .map(|(i, issuer)| {
                let url = issuer.url.trim_end_matches('/').to_owned();
                let tls = outbound.tls(&format!("identity.issuers[{i}].tls"), &issuer.tls)?;
                let target = outbound.target(&format!("issuer {url}")).with_tls(tls);
                let keys =
                    Keys::remote(&issuer.url, issuer.jwks_url.clone(), target, ambient.clone());
                let reader = ClaimMapper {
                    names: issuer.claims.clone(),
                    prefix: issuer.prefix.clone(),
                    admin_roles: Some(config.admin_roles.clone()),
                };
                let issuer = Issuer {
                    url: url.clone(),
                    audience: Some(issuer.audience.clone()),
                    algorithms: issuer.algorithms.clone(),
                    keys,
                    reader,
                    verifications: AtomicU64::new(0),
                };
                Ok((url, Arc::new(issuer)))
            })
            .collect::<Result<_>>()?;
        let builtin = config
            .builtin()
            .then(|| Builtin::start(&config, data_dir, public_url, ambient.clone(), outbound))
            .transpose()?;
        if let Some(builtin) = &builtin {
            issuers.insert(builtin.issuer().url.clone(), builtin.issuer().clone());
        }
        Ok(Identity {
            issuers,
            builtin,
            cache: Cache::new(),
            attempts: Attempts::new(config.refused_per_s, config.refused_burst),
            clock_skew: Duration::from_secs(config.clock_skew_s),
            keys_refresh: Duration::from_secs(config.keys_refresh_s.max(60)),
            ambient,
        })
    }

    /// The principal of a bearer token (without `Bearer`), if it is cached.
    pub fn known(&self, bearer: &str) -> Option<Arc<Principal>> {
        // Too long to have been accepted, and not worth a hash.
        let fits = bearer.len() <= TOKEN_BYTES_MAX;
        fits.then(|| self.cache.get(&token_hash(bearer), self.ambient.now()))?
    }

    /// The principal of a bearer token (without `Bearer`).
    pub async fn authenticate(&self, bearer: &str) -> Result<Arc<Principal>> {
        if let Some(principal) = self.known(bearer) {
            return Ok(principal);
        }
        let now = self.ambient.now();
        let token = Unverified::parse(bearer)?;
        let issuer = self.issuer_of(&token)?;
        // Cheap checks first, so that expired tokens do not cost a signature.
        let skew_s = i64::try_from(self.clock_skew.as_secs()).unwrap_or(0);
        let expires = token::check_times(&token.claims, now, skew_s)?;
        token::check_purpose(&token.header, &token.claims)?;
        token::check_audience(&token.claims, issuer.audience.as_deref())?;
        let key = issuer.verify(&token).await?;
        let principal = Arc::new(issuer.reader.principal(&issuer.url, &token.claims)?);
        self.cache.put(
            token_hash(bearer),
            expires.plus(self.clock_skew),
            &key,
            principal.clone(),
            now,
        );
        Ok(principal)
    }

    /// The principal of a bearer token from this address. When too many tokens of the address were
    /// refused, one that is not cached is refused before its signature is checked.
    pub async fn authenticate_from(
        &self,
        bearer: &str,
        address: Option<IpAddr>,
    ) -> Result<Arc<Principal>> {
        if let Some(principal) = self.known(bearer) {
            return Ok(principal);
        }
        self.attempts.begin(address, self.ambient.now())?;
        let authenticated = self.authenticate(bearer).await;
        // An issuer that is away says nothing about the token.
        if !matches!(authenticated, Err(Error::Unauthenticated { .. })) {
            self.attempts.forgive(address);
        }
        authenticated
    }

    fn issuer_of(&self, token: &Unverified<'_>) -> Result<&Arc<Issuer>> {
        let claimed = token.issuer()?;
        self.issuers.get(claimed.trim_end_matches('/')).ok_or_else(|| {
            let claimed: String = claimed.chars().take(200).collect();
            let mut trusted: Vec<&str> = self.issuers.keys().map(String::as_str).collect();
            trusted.sort_unstable();
            let trusted = match trusted.as_slice() {
                [] => "nobody: no issuer is configured".to_owned(),
                urls => urls.join(", "),
            };
            refused(format!("the token is from {claimed:?}; this server trusts {trusted}"))
        })
    }

    /// The built-in issuer, if enabled.
    pub fn builtin(&self) -> Option<&Builtin> {
        self.builtin.as_ref()
    }

    /// The number of verified signatures, for metrics.
    pub fn verifications(&self) -> u64 {
        self.issuers.values().map(|issuer| issuer.verifications.load(Ordering::Relaxed)).sum()
    }

    /// Fetches the issuers' keys periodically until stopped, so that tokens signed with a withdrawn
    /// key are refused.
    pub async fn keep_keys_fresh(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.keys_refresh) => {}
            }
            self.refresh_keys().await;
        }
    }

    /// Deletes expired sessions every hour until stopped, on one replica at a time.
    pub async fn keep_sessions(&self, store: &dyn Store, name: &str, stop: CancellationToken) {
        let Some(builtin) = &self.builtin else { return };
        loop {
            let round = async {
                match store.lease("sessions", name, SESSIONS_EVERY).await? {
                    Some(_) => builtin.remove_expired_sessions(store).await,
                    None => Ok(0),
                }
            };
            if let Err(error) = round.await {
                tracing::warn!(%error, "removing expired sessions failed; will retry");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SESSIONS_EVERY) => {}
            }
        }
    }

    /// Fetches the issuers' keys now. Keeps the known keys of an issuer that does not respond.
    pub async fn refresh_keys(&self) {
        let all = self.issuers.values().map(|issuer| issuer.keys.refresh(false));
        futures::future::join_all(all).await;
    }
}
