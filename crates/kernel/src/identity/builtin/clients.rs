//! The programs that sign in with a secret.

use async_trait::async_trait;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::oauth::{ClientCredentials, OAuthError};
use crate::Result;
use crate::identity::Principal;
use crate::identity::config::Client;
use crate::outbound::Outbound;
use crate::secret::SecretValue;

/// Each with the newest value of its secret.
pub struct Clients(pub(super) Vec<(Client, Option<SecretValue>)>);

impl Clients {
    pub fn new(clients: &[Client], outbound: &Outbound) -> Result<Clients> {
        let with_secret = |(i, client): (usize, &Client)| {
            let key = format!("identity.clients[{i}].secret");
            let secret = client.secret.as_ref().map(|source| outbound.secret(&key, source));
            Ok((client.clone(), secret.transpose()?))
        };
        clients.iter().enumerate().map(with_secret).collect::<Result<_>>().map(Clients)
    }

    pub fn find(&self, id: &str) -> Option<&Client> {
        self.0.iter().map(|(client, _)| client).find(|client| client.id == id)
    }

    /// The client, if its secret is right. The error is the same for an unknown id and a wrong secret.
    pub fn sign_in(&self, credentials: &ClientCredentials) -> Result<&Client, OAuthError> {
        let offered = credentials.secret.as_deref().unwrap_or_default();
        let found = self.0.iter().find(|(client, _)| client.id == credentials.id);
        match found {
            Some((client, secret)) if has_secret(client, secret, offered)? => Ok(client),
            _ => Err(OAuthError::client("there is no such client with this secret")),
        }
    }
}

/// Clients that a domain keeps.
#[async_trait]
pub trait ClientSource: Send + Sync {
    /// The client with this id, if this is its secret. A wrong secret is indistinguishable from an
    /// unknown id; an error means that the source is unavailable.
    async fn client(&self, id: &str, secret: &str) -> Result<Option<ClientGrant>>;
}

/// The identity that a client's tokens carry.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientGrant {
    pub subject: String,
    pub org: String,
    pub org_admin: bool,
    pub roles: Vec<String>,
    /// The cluster whose agent it is.
    pub agent_of: Option<String>,
    /// More claims of the access token. `clientId` is there already.
    pub claims: Map<String, Value>,
}

impl ClientGrant {
    pub(super) fn principal(&self, id: &str) -> Principal {
        Principal {
            subject: self.subject.clone(),
            org: self.org.clone(),
            org_admin: self.org_admin,
            roles: self.roles.iter().map(|role| role.to_lowercase()).collect(),
            agent_of: self.agent_of.clone(),
            client: id.to_owned(),
            ..Principal::default()
        }
    }
}

/// Compares hashes, so that timing reveals nothing about the secret.
fn has_secret(client: &Client, secret: &Option<SecretValue>, offered: &str) -> Result<bool> {
    let hash = |text: &str| format!("{:x}", Sha256::digest(text));
    Ok(match (secret, &client.secret_sha256) {
        (Some(secret), _) => hash(secret.current()?.expose()) == hash(offered),
        (None, Some(expected)) => expected.eq_ignore_ascii_case(&hash(offered)),
        (None, None) => false,
    })
}

impl From<&Client> for ClientGrant {
    fn from(client: &Client) -> ClientGrant {
        let Client { id, org, org_admin, roles, agent_of, .. } = client.clone();
        ClientGrant { subject: id, org, org_admin, roles, agent_of, claims: Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Ambient;

    #[test]
    fn a_client_signs_in_with_its_secret_or_one_that_has_its_hash() {
        let hash = format!("{:X}", Sha256::digest("s2"));
        let clients = [
            Client { id: "a".into(), secret: Some("s1".into()), ..Client::default() },
            Client { id: "b".into(), secret_sha256: Some(hash), ..Client::default() },
            Client { id: "c".into(), ..Client::default() },
        ];
        let outbound = Outbound::new(Default::default(), Ambient::system(), Arc::new(|_| ()));
        let clients = Clients::new(&clients, &outbound.unwrap()).unwrap();
        let sign_in = |id: &str, secret: Option<&str>| {
            let credentials = ClientCredentials { id: id.into(), secret: secret.map(Into::into) };
            clients.sign_in(&credentials).map(|client| client.id.clone()).map_err(|e| e.why)
        };
        assert_eq!(sign_in("a", Some("s1")).as_deref(), Ok("a"));
        assert_eq!(sign_in("b", Some("s2")).as_deref(), Ok("b"));
        let refusals: Vec<_> =
            [("a", Some("s2")), ("a", None), ("x", Some("s1")), ("c", None), ("c", Some(""))]
                .map(|(id, secret)| sign_in(id, secret).unwrap_err())
                .into();
        assert!(refusals.iter().all(|why| *why == refusals[0]), "{refusals:?}");
    }
}
