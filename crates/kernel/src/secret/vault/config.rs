//! The `vault` section of the configuration.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::outbound::Tls;
use crate::secret::SecretSource;
use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// As in `https://vault.example:8200`. Empty: no secret comes from Vault.
    pub address: String,
    /// Empty: none.
    pub namespace: String,
    pub auth: Auth,
    /// Where the sign-in method is mounted. Empty: under its own name.
    pub mount: String,
    /// For `token`.
    pub token: SecretSource,
    /// For `approle`, with `secret_id`.
    pub role_id: SecretSource,
    pub secret_id: SecretSource,
    /// For `kubernetes`, with the token of a service account in `jwt_path`.
    pub role: String,
    pub jwt_path: PathBuf,
    /// How often a secret without a lease is read again, as those of a KV store.
    pub refresh_s: u64,
    pub tls: Tls,
}

/// How we sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    Token,
    AppRole,
    Kubernetes,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            address: String::new(),
            namespace: String::new(),
            auth: Auth::Token,
            mount: String::new(),
            token: SecretSource::default(),
            role_id: SecretSource::default(),
            secret_id: SecretSource::default(),
            role: String::new(),
            jwt_path: "/var/run/secrets/kubernetes.io/serviceaccount/token".into(),
            refresh_s: 300,
            tls: Tls::default(),
        }
    }
}

impl Config {
    /// The path of the API's root, `/v1`.
    pub(super) fn base(&self) -> Result<Url> {
        let invalid = |why: String| Error::invalid("vault.address", why);
        let example = "give https://vault.example:8200";
        let mut url = Url::parse(&self.address)
            .map_err(|error| invalid(format!("is not a URL ({error}); {example}")))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(invalid(format!("must begin with https:// or http://; {example}")));
        }
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1");
        }
        Ok(url)
    }

    /// Whether what the method needs is there.
    pub fn check(&self) -> Result<()> {
        if self.address.is_empty() {
            return Ok(());
        }
        self.base()?;
        let needed = match self.auth {
            Auth::Token => vec![("token", self.token.is_empty())],
            Auth::AppRole => {
                vec![("role_id", self.role_id.is_empty()), ("secret_id", self.secret_id.is_empty())]
            }
            Auth::Kubernetes => vec![("role", self.role.is_empty())],
        };
        if let Some((name, _)) = needed.into_iter().find(|(_, is_empty)| *is_empty) {
            let why = format!("is empty; vault.auth = \"{}\" needs it", self.auth.name());
            return Err(Error::invalid(format!("vault.{name}"), why));
        }
        for (name, source) in
            [("token", &self.token), ("role_id", &self.role_id), ("secret_id", &self.secret_id)]
        {
            if matches!(source, SecretSource::Vault(_)) {
                let why = "is what we sign in with, so it cannot come from Vault itself";
                return Err(Error::invalid(format!("vault.{name}"), why));
            }
        }
        if self.refresh_s == 0 {
            return Err(Error::invalid("vault.refresh_s", "must be at least 1"));
        }
        Ok(())
    }

    pub(super) fn mount(&self) -> &str {
        if self.mount.is_empty() { self.auth.name() } else { self.mount.trim_matches('/') }
    }
}

impl Auth {
    fn name(self) -> &'static str {
        match self {
            Auth::Token => "token",
            Auth::AppRole => "approle",
            Auth::Kubernetes => "kubernetes",
        }
    }
}
