//! Secrets of the configuration: where each comes from, and its newest value.
//!
//! [`SecretSource`] is what the configuration says. [`Outbound::secret`] makes a [`SecretValue`] of
//! it, which clients of other systems read at each use. A file is read again when it changes, a value
//! of Vault is renewed in time; while that fails, the last value stays.

mod source;
pub mod vault;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use source::{SecretSource, VaultField};

use crate::file_watch::FileWatch;
use crate::health::Check;
use crate::outbound::{Delivery, Outbound};
use crate::telemetry::Secret;
use crate::{Error, Result};
use vault::Vault;

/// A secret, or why there is none yet.
type State = std::result::Result<Secret, Arc<str>>;

/// The newest value of a secret. Cheap to clone.
#[derive(Clone)]
pub struct SecretValue {
    /// The setting that it belongs to.
    key: Arc<str>,
    state: watch::Receiver<State>,
}

impl SecretValue {
    /// A value that never changes. `key` is its setting.
    pub fn fixed(key: &str, secret: Secret) -> SecretValue {
        SecretValue { key: key.into(), state: watch::channel(Ok(secret)).1 }
    }

    /// The value for the next request or connection. Waits for nothing.
    pub fn current(&self) -> Result<Secret> {
        self.state.borrow().clone().map_err(|why| {
            // Nothing is sent without it.
            let what = format!("the secret {}", self.key);
            Error::unavailable(what, &*why).with_delivery(Delivery::NotSent)
        })
    }

    /// Waits until the value is another than when this was last called, for those who keep a
    /// connection. A value that cannot change is waited for without end.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// What keeps secrets up to date.
#[derive(Default)]
pub(crate) struct Secrets {
    pub(crate) files: FileWatch,
    vault: OnceLock<Vault>,
}

impl Outbound {
    /// Sets the Vault that secrets may come from. The first call wins.
    pub fn use_vault(&self, config: &vault::Config) -> Result<()> {
        if let Some(vault) = Vault::new(config, self)? {
            let _ = self.secrets().vault.set(vault);
        }
        Ok(())
    }

    /// The value of a configured secret. `key` is its setting, for errors. A file or variable that
    /// cannot be read is an error; Vault is read by [`Outbound::read_secrets`]. Reads files, so it is
    /// for start-up.
    pub fn secret(&self, key: &str, source: &SecretSource) -> Result<SecretValue> {
        match source {
            SecretSource::File(path) => {
                warn_if_public(key, path);
                let (parsed, shown) = (key.to_owned(), path.clone());
                let parse = move |contents: &[_]| match contents {
                    [content] => source::text(&parsed, &shown, content).map(Ok),
                    _ => Err(Error::internal("a watched file", "it is not one")),
                };
                let state = self.secrets().files.add(key, vec![path.clone()], parse)?;
                Ok(SecretValue { key: key.into(), state })
            }
            SecretSource::Vault(field) => match self.secrets().vault.get() {
                Some(vault) => Ok(SecretValue { key: key.into(), state: vault.watch(key, field) }),
                None => {
                    let why = format!("{field} is of Vault; set vault.address and vault.auth");
                    Err(Error::invalid(key, why))
                }
            },
            SecretSource::Value(_) | SecretSource::Env(_) => {
                Ok(SecretValue::fixed(key, source.read(key)?))
            }
        }
    }

    /// Reads what was not read from Vault yet, once, for as long as this. What fails is retried by
    /// [`Outbound::keep_secrets`].
    pub async fn read_secrets(&self, at_most: Duration) {
        let Some(vault) = self.secrets().vault.get() else { return };
        if tokio::time::timeout(at_most, vault.session(self).refresh_due()).await.is_err() {
            tracing::warn!("Vault has not answered yet; going on without its secrets");
        }
    }

    /// Whether the secrets of Vault are up to date; none without Vault.
    pub fn secret_checks(&self) -> Vec<Check> {
        self.secrets().vault.get().map(Vault::check).into_iter().collect()
    }

    /// Keeps secrets and certificates up to date until stopped.
    pub async fn keep_secrets(&self, stop: CancellationToken) {
        let vault = async {
            if let Some(vault) = self.secrets().vault.get() {
                stop.run_until_cancelled(vault.session(self).keep()).await;
            }
        };
        tokio::join!(self.secrets().files.run(&stop), vault);
    }
}

fn warn_if_public(key: &str, path: &Path) {
    let public = std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o004 != 0);
    if public {
        let file = path.display();
        tracing::warn!(key, %file, "every user of this machine can read the file of a secret");
    }
}
