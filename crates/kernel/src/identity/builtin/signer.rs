//! Signs tokens. Needs only the key, so that `mainstay token` works without a server.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, Header};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::key::SigningKey;
use crate::identity::Principal;
use crate::identity::config::{ClaimNames, Config};
use crate::identity::jwk::Jwk;
use crate::{Ambient, Error, Result, Timestamp};

/// The client that tokens of `mainstay token` and the device grant are for.
pub const CLI_CLIENT: &str = "mainstay-cli";

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To call the API with.
    Access,
    /// The first refresh token of a session, made without a server.
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

    /// The refresh token of this number in a session. A JWT, because clients of Keycloaks read it.
    pub(super) fn refresh_token(
        &self,
        session: &str,
        number: i64,
        who: &Principal,
        client: &str,
        expires_at: Timestamp,
    ) -> Result<String> {
        self.sign(&serde_json::json!({
            "iss": self.issuer,
            "sub": who.subject,
            "azp": client,
            "typ": "Refresh",
            "iat": self.ambient.now().seconds(),
            "exp": expires_at.seconds(),
            "jti": self.ambient.id(),
            "sid": session,
            "num": number,
        }))
    }

    /// An OpenID Connect ID token: says to `client` who signed in, and is not for calling the API.
    pub(super) fn id_token(
        &self,
        who: &Principal,
        client: &str,
        lifetime: Duration,
        nonce: Option<&str>,
        signed_in_at: Timestamp,
        access_token: &str,
    ) -> Result<String> {
        let now = self.ambient.now();
        let mut claims = serde_json::json!({
            "iss": self.issuer,
            "sub": who.subject,
            "aud": client,
            "azp": client,
            "typ": "ID",
            "iat": now.seconds(),
            "exp": now.plus(lifetime).seconds(),
            "auth_time": signed_in_at.seconds(),
            "jti": self.ambient.id(),
            "at_hash": URL_SAFE_NO_PAD.encode(&Sha256::digest(access_token)[..16]),
            "preferred_username": who.subject,
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        self.sign(&claims)
    }

    fn sign(&self, claims: &Value) -> Result<String> {
        let header = Header { kid: Some(self.key.kid.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.key.encoding)
            .map_err(|e| Error::internal("signing a token", e))
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
        self.sign(&claims)
    }
}
