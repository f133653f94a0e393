//! The token endpoint's grants, one function each.

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::{Map, Value};

use super::code::Redeemed;
use super::oauth::{ClientCredentials, Form, OAuthError};
use super::session::{Refreshed, family_of};
use super::{Builtin, Kind, device};
use crate::Store;
use crate::identity::{Client, Principal};

pub const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
pub const GRANTS: [&str; 4] =
    ["authorization_code", "client_credentials", "refresh_token", DEVICE_GRANT];

/// RFC 6749, section 5.1.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Tokens {
    access_token: String,
    token_type: &'static str,
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
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
            && self.clients.find(&credentials.id).is_some_and(Client::has_secret)
        {
            self.clients.sign_in(credentials)?;
        }
        match form.need("grant_type")? {
            "client_credentials" => self.client_credentials(client).await,
            "authorization_code" => self.code(store, form, client).await,
            "refresh_token" => self.refresh(store, form.need("refresh_token")?).await,
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
    /// client of the session.
    async fn refresh(&self, store: &dyn Store, token: &str) -> Result<Tokens, OAuthError> {
        let Refreshed { who, client, refresh_token } = self.refresh_session(store, token).await?;
        self.tokens(&who, &client, Some(refresh_token), &Map::new())
    }

    async fn code(
        &self,
        store: &dyn Store,
        form: &Form,
        client: Option<ClientCredentials>,
    ) -> Result<Tokens, OAuthError> {
        let client = client.ok_or_else(missing_client)?.id;
        let Redeemed { id, request, who, signed_in_at } =
            self.redeem_code(store, form, &client).await?;
        let refresh = self.sign_in(store, &family_of(&id), &who, &client).await?;
        let mut tokens = self.tokens(&who, &client, Some(refresh), &Map::new())?;
        if request.wants_id_token() {
            let nonce = request.nonce.as_deref();
            let (life, access) = (self.access_token, &tokens.access_token);
            let id_token = self.signer.id_token(&who, &client, life, nonce, signed_in_at, access);
            tokens.id_token = Some(id_token?);
        }
        Ok(tokens)
    }

    /// Begins the session of someone who has just approved it. Returns its refresh token.
    async fn sign_in(
        &self,
        store: &dyn Store,
        family: &str,
        who: &Principal,
        client: &str,
    ) -> Result<String, OAuthError> {
        let expires_at = self.ambient.now().plus(self.refresh_token);
        let token = self.begin_session(store, family, who, client, expires_at).await?;
        let why = "a session of this name exists";
        token.ok_or_else(|| crate::Error::internal("a new session", why).into())
    }

    async fn device(
        &self,
        store: &dyn Store,
        device_code: &str,
        client: Option<ClientCredentials>,
    ) -> Result<Tokens, OAuthError> {
        let client = client.ok_or_else(missing_client)?.id;
        let now = self.ambient.now();
        let asked = device::PendingGrant::find(store, device_code, &client).await?;
        if !self.device_polls.allow(asked.id(), now) {
            return Err(OAuthError::new("slow_down", "ask less often"));
        }
        let who = asked.redeem(store, now).await?;
        tracing::info!(subject = who.subject, client, "device signed in");
        let refresh = self.sign_in(store, &self.ambient.id(), &who, &client).await?;
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
            id_token: None,
        })
    }
}

fn missing_client() -> OAuthError {
    OAuthError::new("invalid_request", "`client_id` is missing")
}
