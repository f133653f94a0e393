//! Keycloak's admin API: requests with a token that is renewed in time.

use std::time::Duration;

use kernel::outbound::{self, Outbound, Target};
use kernel::secret::SecretValue;
use kernel::telemetry::Secret;
use kernel::{Ambient, Error, Result, Timestamp};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use super::Config;
use crate::ports::http::{base_url, below};

pub const SYSTEM: &str = "Keycloak";
/// Of a response. A client is a few kilobytes.
const BODY_BYTES_MAX: usize = 4 << 20;
/// A token is renewed so long before it expires, or at half its life if it is short.
const MARGIN: Duration = Duration::from_secs(10);

pub struct Admin {
    target: Target,
    ambient: Ambient,
    config: Config,
    client_secret: SecretValue,
    realm: Url,
    token_url: Url,
    /// Locked during a renewal, so that there is one at a time and all others wait for it.
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    text: Secret,
    renew_at: Timestamp,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: Secret,
    #[serde(default)]
    expires_in: u64,
}

impl Admin {
    pub fn new(config: &Config, outbound: &Outbound) -> Result<Admin> {
        for (field, value) in [("realm", &config.realm), ("client_id", &config.client_id)] {
            if value.is_empty() {
                return Err(Error::invalid(format!("fleet.keycloak.{field}"), "is empty"));
            }
        }
        let base = base_url("fleet.keycloak.url", &config.url, "https://host/auth")?;
        let realm = ["admin", "realms", &config.realm];
        let token = ["realms", &config.realm, "protocol", "openid-connect", "token"];
        let tls = outbound.tls("fleet.keycloak.tls", &config.tls)?;
        let client_secret =
            outbound.secret("fleet.keycloak.client_secret", &config.client_secret)?;
        Ok(Admin {
            target: outbound.target(SYSTEM).with_tls(tls),
            ambient: outbound.ambient().clone(),
            config: config.clone(),
            client_secret,
            realm: below(&base, realm),
            token_url: below(&base, token),
            token: Mutex::new(None),
        })
    }

    pub async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Response> {
        self.send(Method::GET, path, |request| request.query(query)).await
    }

    pub async fn write(&self, method: Method, path: &[&str], body: &Value) -> Result<Response> {
        self.send(method, path, |request| request.json(body)).await
    }

    pub async fn delete(&self, path: &[&str]) -> Result<Response> {
        self.send(Method::DELETE, path, |request| request).await
    }

    /// Sends a request. Any response but "unauthenticated" and "forbidden" is returned.
    async fn send(
        &self,
        method: Method,
        path: &[&str],
        fill: impl Fn(RequestBuilder) -> RequestBuilder + Send,
    ) -> Result<Response> {
        let url = below(&self.realm, path.iter().copied());
        // The collection, never an id: it is a metric label.
        let operation = format!("{method} {}", path.first().unwrap_or(&"realm"));
        let mut token = self.token(None).await?;
        for last in [false, true] {
            let request = self.target.request(method.clone(), url.clone());
            let request = fill(request.bearer_auth(token.expose()));
            let response = self.target.http(&operation, request).await?;
            match response.status() {
                // Keys were rotated, or it was restarted: the token is invalid.
                StatusCode::UNAUTHORIZED if !last => token = self.token(Some(&token)).await?,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let (client, status) = (&self.config.client_id, response.status());
                    let why = format!(
                        "{operation} returned {status}; give the client {client} the roles \
                         manage-clients, manage-users and view-realm of realm-management"
                    );
                    return Err(Error::unavailable(SYSTEM, why));
                }
                _ => return Ok(response),
            }
        }
        unreachable!("the last round returns")
    }

    /// A valid token, other than `refused`.
    async fn token(&self, refused: Option<&Secret>) -> Result<Secret> {
        let mut cached = self.token.lock().await;
        let now = self.ambient.now();
        if let Some(token) = &*cached
            && token.renew_at > now
            && refused != Some(&token.text)
        {
            return Ok(token.text.clone());
        }
        *cached = None;
        let granted = self.grant().await?;
        let life = Duration::from_secs(granted.expires_in);
        let renew_at = now.plus(life.saturating_sub(MARGIN).max(life / 2));
        *cached = Some(Token { text: granted.access_token.clone(), renew_at });
        Ok(granted.access_token)
    }

    async fn grant(&self) -> Result<TokenResponse> {
        let client_secret = self.client_secret.current()?;
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", &self.config.client_id),
            ("client_secret", client_secret.expose()),
        ];
        // Two tokens for a repeated request are harmless.
        let request = self.target.request(Method::POST, self.token_url.clone());
        let request = request.header("idempotency-key", "token").form(&form);
        let response = self.target.http("token", request).await?;
        match response.status() {
            status if status.is_success() => outbound::json(response, BODY_BYTES_MAX).await,
            StatusCode::NOT_FOUND => {
                let realm = &self.config.realm;
                Err(Error::unavailable(
                    SYSTEM,
                    format!("no realm {realm}; check fleet.keycloak.realm"),
                ))
            }
            status => {
                let client = &self.config.client_id;
                let why = format!(
                    "it gave the client {client} no token ({status}); check \
                     fleet.keycloak.client_id and fleet.keycloak.client_secret"
                );
                Err(Error::unavailable(SYSTEM, why))
            }
        }
    }
}

/// The error of a response that is neither a success nor expected.
pub async fn unexpected(what: &str, response: Response) -> Error {
    let status = response.status();
    let body = outbound::body(response, 1 << 16).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let message =
        ["errorMessage", "error_description", "error"].iter().find_map(|key| body[key].as_str());
    let why = format!("{what} returned {status}: {}", message.unwrap_or("no message"));
    if status == StatusCode::BAD_REQUEST || status == StatusCode::CONFLICT {
        // A retry would have the same result.
        return Error::internal(SYSTEM, why);
    }
    Error::unavailable(SYSTEM, why)
}

pub async fn json<T: serde::de::DeserializeOwned>(what: &str, response: Response) -> Result<T> {
    if !response.status().is_success() {
        return Err(unexpected(what, response).await);
    }
    outbound::json(response, BODY_BYTES_MAX).await
}
