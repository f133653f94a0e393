//! Clients of the SSO system, and its endpoints.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A program that authenticates with client credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Client {
    /// Its client id, such as `srvc-acct-…`.
    pub id: String,
    pub secret: String,
    pub name: String,
    pub description: String,
    /// The organisation that owns it; may be empty.
    pub org: String,
    /// The name of the user who created it.
    pub owner: String,
    /// The id of that user.
    pub account: String,
    /// Further attributes.
    pub attributes: BTreeMap<String, String>,
    /// Roles of the realm, which must exist.
    pub roles: Vec<String>,
    /// Further claims of its tokens.
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

/// Where clients get their tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    pub name: String,
    pub base_url: String,
    pub token_url: String,
    pub jwks: String,
    pub issuer: String,
}

/// Precedes the cluster's id in the client id of its agent.
pub const AGENT_CLIENT_PREFIX: &str = "kas-fleetshard-agent-";
/// Precedes the instance's id in the client id of its canary.
pub const CANARY_CLIENT_PREFIX: &str = "canary-";

/// The client id of a cluster's agent.
pub fn agent_client_id(cluster: &str) -> String {
    format!("{AGENT_CLIENT_PREFIX}{cluster}")
}

/// The client id of an instance's canary.
pub fn canary_client_id(instance: &str) -> String {
    format!("{CANARY_CLIENT_PREFIX}{instance}")
}

/// The claims about its organisation in the tokens of a client.
pub fn claims(org: &str, account: &str) -> impl Iterator<Item = (String, String)> {
    let claims = [("rh-org-id", org), ("rh-user-id", account)];
    let claims = claims.map(|(name, value)| (name.to_owned(), value.to_owned()));
    claims.into_iter().filter(|(_, value)| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_printed_without_its_secret() {
        let client = Client { id: "a".into(), secret: "hunter2".into(), ..Client::default() };
        assert!(!format!("{client:?} {client:#?}").contains("hunter2"));
    }
}
