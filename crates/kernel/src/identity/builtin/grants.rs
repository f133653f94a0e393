//! The token endpoint's grants, one function each.

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::{Map, Value};

use super::oauth::{ClientCredentials, Form, OAuthError};
use super::{Builtin, CLI_CLIENT, Kind, device};
use crate::Store;
use crate::identity::Principal;
use crate::identity::token::{self, Unverified};

pub const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
pub const GRANTS: [&str; 3] = ["client_credentials", "refresh_token", DEVICE_GRANT];

/// RFC 6749, section 5.1.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Tokens {
    access_token: String,
    token_type: &'static str,
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
}

impl Builtin {
    pub(super) async fn grant(
        &self,
        store: &dyn Store,
        headers: &HeaderMap,
        form: &Form,
    ) -> Result<Tokens, OAuthError> {
        let client = ClientCredentials::read(headers, form)?;
        // A client with a secret must present it, for every grant.
        if let Some(credentials) = &client
            && self.clients.find(&credentials.id).is_some()
        {
            self.clients.sign_in(credentials)?;
        }
        match form.need("grant_type")? {
            "client_credentials" => self.client_credentials(client).await,
            "refresh_token" => self.refresh(form.need("refresh_token")?).await,
            DEVICE_GRANT => self.device(store, form.need("device_code")?, client).await,
            other => {
                let other: String = other.chars().take(80).collect();
                let why = format!("{other:?} is none of {}", GRANTS.join(", "));
                Err(OAuthError::new("unsupported_grant_type", why))
            }
        }
    }

    async fn client_credentials(
        &self,
        client: Option<ClientCredentials>,
    ) -> Result<Tokens, OAuthError> {
        let credentials = client.ok_or_else(|| {
            OAuthError::client("send the client's id and secret, by HTTP Basic or in the form")
        })?;
        let ClientCredentials { id, secret } = &credentials;
        let kept = match (self.clients.find(id), self.client_source.get()) {
            (None, Some(source)) => {
                source.client(id, secret.as_deref().unwrap_or_default()).await?
            }
            _ => None,
        };
        let grant = match kept {
            Some(grant) => grant,
            None => self.clients.sign_in(&credentials)?.into(),
        };
        self.tokens(&grant.principal(id), id, None, &grant.claims)
    }

    /// Any client may present a refresh token: it is a bearer token. The new token belongs to the
    /// client of the refresh token.
    async fn refresh(&self, refresh_token: &str) -> Result<Tokens, OAuthError> {
        let (who, client) = self.refreshed(refresh_token).await?;
        self.tokens(&who, &client, Some(refresh_token.to_owned()), &Map::new())
    }

    /// The subject and client of a valid refresh token.
    pub(super) async fn refreshed(
        &self,
        refresh_token: &str,
    ) -> Result<(Principal, String), OAuthError> {
        let refused = |why: &str| OAuthError::new("invalid_grant", why);
        let invalid = |error: crate::Error| refused(&error.to_string());
        let token = Unverified::parse(refresh_token).map_err(invalid)?;
        token::check_times(&token.claims, self.ambient.now(), self.clock_skew_s)
            .map_err(invalid)?;
        if token.issuer().map_err(invalid)?.trim_end_matches('/') != self.issuer.url {
            return Err(refused("the refresh token is from another issuer"));
        }
        if token.claims.get("typ").and_then(Value::as_str) != Some("Refresh") {
            return Err(refused("this is not a refresh token"));
        }
        self.issuer.verify(&token).await.map_err(invalid)?;
        let who = self.issuer.reader.principal(&self.issuer.url, &token.claims).map_err(invalid)?;
        let client = token::text(&token.claims, "azp").unwrap_or(CLI_CLIENT);
        Ok((who, client.to_owned()))
    }

    async fn device(
        &self,
        store: &dyn Store,
        device_code: &str,
        client: Option<ClientCredentials>,
    ) -> Result<Tokens, OAuthError> {
        let client =
            client.ok_or_else(|| OAuthError::new("invalid_request", "`client_id` is missing"))?.id;
        let now = self.ambient.now();
        let asked = device::PendingGrant::find(store, device_code, &client).await?;
        if !self.device_polls.allow(asked.id(), now) {
            return Err(OAuthError::new("slow_down", "ask less often"));
        }
        let who = asked.redeem(store, now).await?;
        tracing::info!(subject = who.subject, client, "device signed in");
        let refresh = self.signer.issue(&who, &client, self.refresh_token, Kind::Refresh)?;
        self.tokens(&who, &client, Some(refresh), &Map::new())
    }

    fn tokens(
        &self,
        who: &Principal,
        client: &str,
        refresh_token: Option<String>,
        claims: &Map<String, Value>,
    ) -> Result<Tokens, OAuthError> {
        let lifetime = self.access_token;
        Ok(Tokens {
            access_token: self.signer.issue_with(who, client, lifetime, Kind::Access, claims)?,
            token_type: "Bearer",
            expires_in: self.access_token.as_secs(),
            refresh_token,
        })
    }
}
