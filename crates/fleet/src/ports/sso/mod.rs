//! The clients of service accounts, canaries and agents, where they sign in: a Keycloak, or our
//! own issuer.
//!
//! Their secrets are derived, never stored: whoever deletes a client by hand gets it back with the
//! same secret, and nobody who uses it notices.

mod admin;
mod keycloak;

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use kernel::Result;
use kernel::telemetry::Secret;
use serde::{Deserialize, Serialize};

pub use keycloak::Keycloak;

/// A program that signs in with client credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Client {
    /// What it calls itself, such as `srvc-acct-…`.
    pub id: String,
    pub secret: String,
    pub name: String,
    pub description: String,
    /// Whose it is; empty if nobody's.
    pub org: String,
    /// The name of the user who made it.
    pub owner: String,
    /// The id of that user.
    pub account: String,
    /// What else is noted with it.
    pub attributes: BTreeMap<String, String>,
    /// Roles of the realm, which must exist.
    pub roles: Vec<String>,
    /// What its tokens say besides.
    pub claims: BTreeMap<String, String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Client { id, org, owner, roles, claims, .. } = self;
        f.debug_struct("Client")
            .field("id", id)
            .field("org", org)
            .field("owner", owner)
            .field("roles", roles)
            .field("claims", claims)
            .finish_non_exhaustive()
    }
}

#[async_trait]
pub trait Sso: Send + Sync + 'static {
    /// Makes the client so, with this secret (a client_credentials client with a service account).
    async fn ensure(&self, client: &Client) -> Result<()>;
    /// Whether it is there and as it should be (enabled, secret equal, attributes equal).
    async fn is_so(&self, client: &Client) -> Result<bool>;
    async fn remove(&self, id: &str) -> Result<()>;
    fn endpoints(&self) -> Endpoints;
}

/// Where clients get their tokens, as users are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    pub name: String,
    pub base_url: String,
    pub token_url: String,
    pub jwks: String,
    pub issuer: String,
}

/// Which Keycloak. Empty: our own issuer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Up to, not including, `/realms`; some have `/auth` at the end.
    pub url: String,
    pub realm: String,
    /// A client of the realm with the roles manage-clients, manage-users and view-realm of
    /// `realm-management`.
    pub client_id: String,
    pub client_secret: Secret,
}

impl Config {
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }
}

/// Our own issuer: the objects in our store are its clients, so there is nothing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    /// Of this server, as clients reach it.
    pub url: String,
}

#[async_trait]
impl Sso for BuiltIn {
    async fn ensure(&self, _: &Client) -> Result<()> {
        Ok(())
    }

    async fn is_so(&self, _: &Client) -> Result<bool> {
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

    #[test]
    fn a_client_is_printed_without_its_secret() {
        let client = Client { id: "a".into(), secret: "hunter2".into(), ..Client::default() };
        assert!(!format!("{client:?} {client:#?}").contains("hunter2"));
    }

    #[tokio::test]
    async fn the_built_in_issuer_needs_nothing_and_says_where_it_is() {
        let own = BuiltIn { url: "https://mainstay.example/".into() };
        own.ensure(&Client::default()).await.unwrap();
        own.remove("nobody").await.unwrap();
        assert!(own.is_so(&Client::default()).await.unwrap());
        let endpoints = own.endpoints();
        assert_eq!(endpoints.issuer, "https://mainstay.example");
        assert_eq!(endpoints.token_url, "https://mainstay.example/oauth/token");
        assert_eq!(endpoints.jwks, "https://mainstay.example/oauth/jwks");
    }
}
