//! The SSO system that keeps the clients of service accounts, canaries and agents: a Keycloak, or our
//! own issuer.
//!
//! Secrets are derived, never stored: a client that was deleted by hand is created again with the same
//! secret, and its users do not notice.

mod admin;
mod clients;
mod keycloak;
mod secrets;

use async_trait::async_trait;
use kernel::Result;
use kernel::outbound::Tls;
use kernel::secret::SecretSource;
use serde::{Deserialize, Serialize};

pub use admin::SYSTEM;
pub use clients::{agent_client, canary_client, service_account_client};
pub use keycloak::Keycloak;
pub use secrets::Secrets;

use crate::model::sso::{Client, Endpoints};

#[async_trait]
pub trait Sso: Send + Sync + 'static {
    /// Creates or repairs the client (client credentials, with a service account).
    async fn ensure(&self, client: &Client) -> Result<()>;
    /// Whether the client exists and matches (enabled, secret equal, attributes equal).
    async fn matches(&self, client: &Client) -> Result<bool>;
    async fn remove(&self, id: &str) -> Result<()>;
    fn endpoints(&self) -> Endpoints;
}

/// The Keycloak to use. Empty: our own issuer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Up to, not including, `/realms`; some have `/auth` at the end.
    pub url: String,
    pub realm: String,
    /// A client of the realm with the roles manage-clients, manage-users and view-realm of
    /// `realm-management`.
    pub client_id: String,
    pub client_secret: SecretSource,
    pub tls: Tls,
}

impl Config {
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }
}

/// Our own issuer: the objects in our store are its clients, so there is nothing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    /// The URL of this server, as clients reach it.
    pub url: String,
}

#[async_trait]
impl Sso for BuiltIn {
    async fn ensure(&self, _: &Client) -> Result<()> {
        Ok(())
    }

    async fn matches(&self, _: &Client) -> Result<bool> {
        Ok(true)
    }

    async fn remove(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn endpoints(&self) -> Endpoints {
        let url = self.url.trim_end_matches('/');
        Endpoints {
            name: "mainstay".into(),
            base_url: url.into(),
            token_url: format!("{url}/oauth/token"),
            jwks: format!("{url}/oauth/jwks"),
            issuer: url.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_built_in_issuer_needs_no_clients_and_has_endpoints() {
        let own = BuiltIn { url: "https://mainstay.example/".into() };
        own.ensure(&Client::default()).await.unwrap();
        own.remove("nobody").await.unwrap();
        assert!(own.matches(&Client::default()).await.unwrap());
        let endpoints = own.endpoints();
        assert_eq!(endpoints.issuer, "https://mainstay.example");
        assert_eq!(endpoints.token_url, "https://mainstay.example/oauth/token");
        assert_eq!(endpoints.jwks, "https://mainstay.example/oauth/jwks");
    }
}
