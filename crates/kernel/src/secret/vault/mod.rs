//! Secrets in Vault: each path is read once for all of its fields, so that a user and a password belong
//! together, and again at half of its lease.

mod config;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use url::Url;

pub use config::{Auth, Config};

use super::{SecretValue, State, VaultField};
use crate::health::Check;
use crate::outbound::{Outbound, TlsFiles};
use crate::{Backoff, Result};
use session::{Lease, Session, Token};

pub const SYSTEM: &str = "Vault";
/// Between attempts to read a secret or to sign in.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

pub(super) struct Vault {
    config: Config,
    base: Url,
    tls: Option<TlsFiles>,
    credentials: Credentials,
    /// Locked during a sign-in, so that there is one at a time and all others wait for it.
    token: tokio::sync::Mutex<Option<Token>>,
    paths: Mutex<BTreeMap<String, Arc<Watched>>>,
    added: Notify,
}

/// What we sign in with.
enum Credentials {
    Token(SecretValue),
    AppRole { role_id: SecretValue, secret_id: SecretValue },
    Kubernetes,
}

/// A path that is read, and who waits for which of its fields.
struct Watched {
    path: String,
    state: Mutex<WatchedState>,
}

struct WatchedState {
    fields: Vec<Field>,
    lease: Option<Lease>,
    due: Instant,
    failures: u32,
}

struct Field {
    /// The setting that it is for.
    key: String,
    name: String,
    sender: watch::Sender<State>,
}

impl Vault {
    /// `None` without an address.
    pub(super) fn new(config: &Config, outbound: &Outbound) -> Result<Option<Vault>> {
        if config.address.is_empty() {
            return Ok(None);
        }
        config.check()?;
        let secret = |name, source| outbound.secret(&format!("vault.{name}"), source);
        let credentials = match config.auth {
            Auth::Token => Credentials::Token(secret("token", &config.token)?),
            Auth::AppRole => Credentials::AppRole {
                role_id: secret("role_id", &config.role_id)?,
                secret_id: secret("secret_id", &config.secret_id)?,
            },
            Auth::Kubernetes => Credentials::Kubernetes,
        };
        Ok(Some(Vault {
            base: config.base()?,
            tls: outbound.tls("vault.tls", &config.tls)?,
            credentials,
            config: config.clone(),
            token: Default::default(),
            paths: Mutex::default(),
            added: Notify::new(),
        }))
    }

    /// The value of a field, from the next reading on.
    pub(super) fn watch(&self, key: &str, field: &VaultField) -> watch::Receiver<State> {
        let (sender, receiver) = watch::channel(Err("it was not read from Vault yet".into()));
        let mut paths = self.paths.lock();
        let watched = paths.entry(field.path.clone()).or_insert_with(|| Watched::new(&field.path));
        let mut state = watched.state.lock();
        state.fields.push(Field { key: key.into(), name: field.field.clone(), sender });
        // What was leased already is read again, so that all fields are of the same reading.
        (state.lease, state.due) = (None, Instant::now());
        drop(state);
        self.added.notify_one();
        receiver
    }

    pub(super) fn session<'a>(&'a self, outbound: &Outbound) -> Session<'a> {
        let target = outbound.target(SYSTEM).with_tls(self.tls.clone());
        Session { vault: self, target, ambient: outbound.ambient().clone() }
    }

    /// Leases end with the token that they were given to: what they were for is read again.
    fn drop_leases(&self) {
        for watched in self.watched() {
            let mut state = watched.state.lock();
            if state.lease.take().is_some() {
                state.due = Instant::now();
            }
        }
    }

    /// The paths whose fields somebody needs.
    fn watched(&self) -> Vec<Arc<Watched>> {
        let mut paths = self.paths.lock();
        paths.retain(|_, watched| {
            let mut state = watched.state.lock();
            state.fields.retain(|field| !field.sender.is_closed());
            !state.fields.is_empty()
        });
        paths.values().cloned().collect()
    }

    pub(super) fn check(&self) -> Check {
        let (mut total, mut missing, mut failing) = (0, 0, false);
        for watched in self.watched() {
            let state = watched.state.lock();
            total += state.fields.len();
            missing += state.fields.iter().filter(|field| field.sender.borrow().is_err()).count();
            failing |= state.failures > 0;
        }
        let result = if missing > 0 {
            Err(format!("secrets without a value: {missing} of {total}; the log says why"))
        } else if failing {
            Err("secrets cannot be read; the last values are kept, and the log says why".into())
        } else {
            Ok(format!("secrets that are up to date: {total}"))
        };
        Check { name: SYSTEM.into(), result }
    }
}

impl Watched {
    fn new(path: &str) -> Arc<Watched> {
        let (fields, lease, due) = (Vec::new(), None, Instant::now());
        let state = Mutex::new(WatchedState { fields, lease, due, failures: 0 });
        Arc::new(Watched { path: path.into(), state })
    }
}

impl Session<'_> {
    /// Keeps the token and all secrets up to date. Never returns.
    pub(super) async fn keep(&self) {
        loop {
            let paths = self.vault.watched();
            let paths = paths.iter().map(|watched| watched.state.lock().due).min();
            let token = self.vault.token.lock().await.as_ref().and_then(|token| token.renew_at);
            match paths.into_iter().chain(token).min() {
                None => self.vault.added.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = self.vault.added.notified() => {}
                },
            }
            self.refresh_due().await;
        }
    }

    /// Renews the token and reads the secrets whose time has come.
    pub(super) async fn refresh_due(&self) {
        let now = Instant::now();
        let is_due = |watched: &Arc<Watched>| watched.state.lock().due <= now;
        let due: Vec<_> = self.vault.watched().into_iter().filter(is_due).collect();
        let renew = {
            let token = self.vault.token.lock().await;
            token.as_ref().and_then(|token| token.renew_at).is_some_and(|at| at <= now)
        };
        if renew && let Err(error) = self.token(None).await {
            tracing::warn!(%error, "signing in to Vault failed; will retry");
        }
        futures::future::join_all(due.iter().map(|watched| self.refresh(watched))).await;
    }

    /// Extends the lease of what is at a path, or reads it.
    async fn refresh(&self, watched: &Watched) {
        let lease = watched.state.lock().lease.clone();
        let renewed = match &lease {
            Some(lease) if lease.renewable => self.renew_lease(lease).await,
            _ => Ok(None),
        };
        // A much shorter life than at first: the lease cannot last longer, so it needs a successor.
        let renewed = renewed.map(|renewed| {
            renewed.filter(|life| lease.as_ref().is_some_and(|lease| *life >= lease.life / 2))
        });
        let read = match renewed {
            Ok(Some(life)) => {
                let mut state = watched.state.lock();
                // Dropped meanwhile: it is read again at once.
                if state.lease.is_some() {
                    state.done(life / 2);
                }
                return;
            }
            Ok(None) => self.read(&watched.path).await,
            Err(error) => Err(error),
        };
        let mut state = watched.state.lock();
        match read {
            Ok(read) => {
                for field in &state.fields {
                    field.set(&watched.path, read.field(&watched.path, &field.name));
                }
                let unleased = Duration::from_secs(self.vault.config.refresh_s);
                state.done(read.lease.as_ref().map_or(unleased, |lease| lease.life / 2));
                state.lease = read.lease;
            }
            Err(error) => {
                state
                    .fields
                    .iter()
                    .for_each(|field| field.set(&watched.path, Err(error.to_string())));
                state.due = Instant::now() + RETRY.delay(state.failures, self.ambient.fraction());
                state.failures = state.failures.saturating_add(1);
            }
        }
    }
}

impl WatchedState {
    fn done(&mut self, next: Duration) {
        self.failures = 0;
        // A lease of no time would be renewed without a pause.
        self.due = Instant::now() + next.max(Duration::from_millis(500));
    }
}

impl Field {
    /// An error replaces no value.
    fn set(&self, path: &str, read: Result<crate::telemetry::Secret, String>) {
        let key = &self.key;
        if let Err(error) = &read {
            tracing::warn!(key, path, error, "reading a secret from Vault failed; will retry");
        }
        let changed = self.sender.send_if_modified(|state| match (&read, &*state) {
            (Ok(new), Ok(old)) if new == old => false,
            (Err(_), Ok(_)) => false,
            (Ok(new), _) => {
                *state = Ok(new.clone());
                true
            }
            (Err(why), Err(_)) => {
                *state = Err(why.as_str().into());
                false
            }
        });
        if changed {
            tracing::info!(key, path, "read a secret from Vault");
        }
    }
}
