//! As whom a data source is asked: the header that each request carries.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::outbound::{self, Outbound, Target, TlsFiles, breaker, redact};
use kernel::secret::SecretValue;
use kernel::telemetry::Secret;
use kernel::{Ambient, Error, Result, Timestamp};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use crate::model::datasource::{Authentication, address};

/// Of a token's response; a token has some kilobytes.
const TOKEN_BYTES_MAX: usize = 1 << 20;
/// A token is renewed so long before it expires, or at half its life if it is short.
const MARGIN: Duration = Duration::from_secs(30);
/// What RFC 6749 leaves open: how long a token is good for that does not say.
const LIFE_UNKNOWN: Duration = Duration::from_secs(60);

/// A header that says who we are. Its value is not printed.
pub type Credential = (HeaderName, HeaderValue);

pub struct Authenticator(Kind);

enum Kind {
    None,
    Basic { username: String, password: SecretValue },
    Bearer { token: SecretValue },
    ApiKey { header: HeaderName, key: SecretValue },
    Oauth2(Box<Grants>),
}

impl Authenticator {
    /// `key` is the setting, for errors. Reads files, so it is for start-up. With `guarded`, a user has
    /// given the addresses.
    pub fn new(
        key: &str,
        authentication: &Authentication,
        outbound: &Outbound,
        tls: Option<TlsFiles>,
        guarded: bool,
    ) -> Result<Self> {
        let secret = |name: &str, source| {
            let key = format!("{key}.{name}");
            let secret = outbound.secret(&key, source)?;
            if source.is_empty() { Err(Error::invalid(key, "is empty")) } else { Ok(secret) }
        };
        Ok(Self(match authentication {
            Authentication::None => Kind::None,
            Authentication::Basic { username, password } => {
                // A colon would end the user's name.
                if username.is_empty() || username.contains(':') {
                    let why = "must be given, and without a colon";
                    return Err(Error::invalid(format!("{key}.username"), why));
                }
                Kind::Basic { username: username.clone(), password: secret("password", password)? }
            }
            Authentication::Bearer { token } => Kind::Bearer { token: secret("token", token)? },
            Authentication::ApiKey { header, key: api_key } => {
                let name = header.parse();
                let invalid = |_| Error::invalid(format!("{key}.header"), "is not a header's name");
                Kind::ApiKey { header: name.map_err(invalid)?, key: secret("key", api_key)? }
            }
            Authentication::Oauth2 { token_url, client_id, client_secret, scope } => {
                if client_id.is_empty() {
                    return Err(Error::invalid(format!("{key}.client_id"), "is empty"));
                }
                let target = outbound.target("OAuth 2.0").with_tls(tls);
                let target = if guarded { target.guard_ssrf() } else { target };
                Kind::Oauth2(Box::new(Grants {
                    target: target.with_breaker(breaker::Config::default()),
                    guarded,
                    ambient: outbound.ambient().clone(),
                    token_url: address(&format!("{key}.token_url"), token_url)?,
                    client_id: client_id.clone(),
                    client_secret: secret("client_secret", client_secret)?,
                    scope: scope.clone(),
                    token: Mutex::new(None),
                }))
            }
        }))
    }

    /// The credential for the next request, other than one that was refused.
    pub async fn credential(&self, refused: Option<&Credential>) -> Result<Option<Credential>> {
        let (header, value) = match &self.0 {
            Kind::None => return Ok(None),
            Kind::Basic { username, password } => {
                let pair = format!("{username}:{}", password.current()?.expose());
                (AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)))
            }
            Kind::Bearer { token } => (AUTHORIZATION, bearer(&token.current()?)),
            Kind::ApiKey { header, key } if *header == AUTHORIZATION => {
                (AUTHORIZATION, format!("Api-Key {}", key.current()?.expose()))
            }
            Kind::ApiKey { header, key } => (header.clone(), key.current()?.expose().clone()),
            Kind::Oauth2(grants) => (AUTHORIZATION, bearer(&grants.token(refused).await?)),
        };
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| {
            Error::invalid("authentication", "has characters that no header may have")
        })?;
        value.set_sensitive(true);
        Ok(Some((header, value)))
    }
}

fn bearer(token: &Secret) -> String {
    // A file may have more lines; the token is its first.
    format!("Bearer {}", token.expose().lines().next().unwrap_or_default().trim())
}

/// Tokens of the client credentials grant.
struct Grants {
    target: Target,
    guarded: bool,
    ambient: Ambient,
    token_url: Url,
    client_id: String,
    client_secret: SecretValue,
    scope: String,
    /// Locked during a renewal, so that there is one at a time and all others wait for it.
    token: Mutex<Option<Token>>,
}

struct Token {
    text: Secret,
    renew_at: Timestamp,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: Secret,
    expires_in: Option<f64>,
}

impl Grants {
    async fn token(&self, refused: Option<&Credential>) -> Result<Secret> {
        let mut cached = self.token.lock().await;
        let now = self.ambient.now();
        let refused = refused.and_then(|(_, value)| value.to_str().ok());
        if let Some(token) = &*cached
            && token.renew_at > now
            && refused != Some(bearer(&token.text).as_str())
        {
            return Ok(token.text.clone());
        }
        *cached = None;
        let granted = self.grant().await?;
        let life = granted.expires_in.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let life = life.unwrap_or(LIFE_UNKNOWN);
        let renew_at = now.plus(life.saturating_sub(MARGIN).max(life / 2));
        *cached = Some(Token { text: granted.access_token.clone(), renew_at });
        Ok(granted.access_token)
    }

    async fn grant(&self) -> Result<TokenResponse> {
        let secret = self.client_secret.current()?;
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("client_id", &self.client_id),
            ("client_secret", secret.expose()),
        ];
        if !self.scope.is_empty() {
            form.push(("scope", &self.scope));
        }
        // Two tokens for a repeated request are harmless.
        let request = self.target.request(Method::POST, self.token_url.clone());
        let request = request.header("idempotency-key", "token").form(&form);
        let response = self.target.http("token", request).await?;
        let status = response.status();
        if status.is_success() {
            return outbound::json(response, TOKEN_BYTES_MAX).await;
        }
        let body = outbound::body(response, TOKEN_BYTES_MAX).await.unwrap_or_default();
        // What a user's address answers may be of a system that only we can reach.
        let said = if self.guarded {
            "its words are not shown".to_owned()
        } else {
            redact::message(&body, &[secret.expose().clone()])
        };
        let what = format!("a token from {}", redact::url(&self.token_url));
        let hint = if status == StatusCode::NOT_FOUND {
            "check token_url"
        } else {
            "check client_id and client_secret"
        };
        let why = format!("it answered {status} to the client {}: {said}; {hint}", self.client_id);
        Err(Error::unavailable(what, why).with_delivery(outbound::Delivery::Answered))
    }
}
