//! Signs tokens. Needs only the key, so that `mainstay token` works without a server.

use std::path::Path;
use std::time::Duration;

use jsonwebtoken::{Algorithm, Header};
use serde::Serialize;
use serde_json::{Map, Value};

use super::key::SigningKey;
use crate::identity::Principal;
use crate::identity::config::{ClaimNames, Config};
use crate::identity::jwk::Jwk;
use crate::{Ambient, Error, Result};

/// The client that tokens of `mainstay token` and the device grant are for.
pub const CLI_CLIENT: &str = "mainstay-cli";

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To call the API with.
    Access,
    /// For getting access tokens at the token endpoint. Self-contained: usable
    /// until it expires; only a new signing key revokes it earlier.
    Refresh,
}

pub struct Signer {
    pub(super) issuer: String,
    key: SigningKey,
    ambient: Ambient,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    typ: &'a str,
    azp: &'a str,
    jti: String,
    iat: i64,
    exp: i64,
    preferred_username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    org_id: &'a str,
    is_org_admin: bool,
    realm_access: RealmAccess<'a>,
    #[serde(rename = "clientId", skip_serializing_if = "str::is_empty")]
    own_client: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    account_id: &'a str,
    #[serde(
        rename = "kas-fleetshard-operator-cluster-id",
        skip_serializing_if = "Option::is_none"
    )]
    cluster: Option<&'a str>,
}

#[derive(Serialize)]
struct RealmAccess<'a> {
    roles: Vec<&'a str>,
}

impl Signer {
    /// With the key of the data directory, or the configured one. `public_url` is the issuer's
    /// name: servers with the same name and key accept the tokens.
    pub fn open(
        config: &Config,
        data_dir: &Path,
        public_url: &str,
        ambient: Ambient,
    ) -> Result<Signer> {
        let key = SigningKey::open(config, data_dir, &ambient)?;
        Ok(Signer { issuer: public_url.trim_end_matches('/').to_owned(), key, ambient })
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    pub fn public_key(&self) -> &Jwk {
        &self.key.public
    }

    /// A token for `who`, whose `issuer` is ignored. `client` is the program it is for.
    pub fn issue(
        &self,
        who: &Principal,
        client: &str,
        lifetime: Duration,
        kind: Kind,
    ) -> Result<String> {
        self.issue_with(who, client, lifetime, kind, &Map::new())
    }

    /// Adds claims; reserved ones win.
    pub(super) fn issue_with(
        &self,
        who: &Principal,
        client: &str,
        lifetime: Duration,
        kind: Kind,
        more: &Map<String, Value>,
    ) -> Result<String> {
        let now = self.ambient.now();
        let agent_role = ClaimNames::default().agent_role;
        let mut roles: Vec<&str> = who.roles.iter().map(String::as_str).collect();
        if who.agent_of.is_some() && !roles.contains(&agent_role.as_str()) {
            roles.push(&agent_role);
        }
        let claims = Claims {
            iss: &self.issuer,
            sub: &who.subject,
            typ: match kind {
                Kind::Access => "Bearer",
                Kind::Refresh => "Refresh",
            },
            azp: client,
            jti: self.ambient.id(),
            iat: now.seconds(),
            exp: now.plus(lifetime).seconds(),
            preferred_username: &who.subject,
            org_id: &who.org,
            is_org_admin: who.org_admin,
            realm_access: RealmAccess { roles },
            own_client: &who.client,
            account_id: &who.account,
            cluster: who.agent_of.as_deref(),
        };
        let signing = |e| Error::internal("signing a token", e);
        let mut claims = serde_json::to_value(&claims).map_err(signing)?;
        if let Value::Object(claims) = &mut claims {
            for (name, value) in more {
                claims.entry(name).or_insert_with(|| value.clone());
            }
        }
        let header = Header { kid: Some(self.key.kid.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, &claims, &self.key.encoding)
            .map_err(|e| Error::internal("signing a token", e))
    }
}
