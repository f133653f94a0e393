//! Vault's API: signs in, renews the token and leases at half of their life, reads secrets.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Credentials, RETRY, SYSTEM, Vault};
use crate::outbound::{self, Delivery, Target, redact};
use crate::telemetry::Secret;
use crate::{Ambient, Error, Result, files};

/// A secret is at most as large as Vault stores, about a megabyte.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Vault, and how it is called.
pub struct Session<'a> {
    pub vault: &'a Vault,
    pub target: Target,
    pub ambient: Ambient,
}

/// What we are signed in with.
pub struct Token {
    text: Secret,
    renewable: bool,
    /// As granted at sign-in. `None`: it does not expire.
    life: Option<Duration>,
    expires_at: Option<Instant>,
    pub renew_at: Option<Instant>,
    failures: u32,
}

#[derive(Clone)]
pub struct Lease {
    id: String,
    pub life: Duration,
    pub renewable: bool,
}

/// What is at a path.
pub struct ReadSecret {
    data: Map<String, Value>,
    pub lease: Option<Lease>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response {
    lease_id: String,
    lease_duration: u64,
    renewable: bool,
    data: Option<Map<String, Value>>,
    auth: Option<AuthResponse>,
}

#[derive(Deserialize)]
struct AuthResponse {
    client_token: Secret,
    #[serde(default)]
    lease_duration: u64,
    #[serde(default)]
    renewable: bool,
}

impl Token {
    fn new(text: Secret, life_s: u64, renewable: bool) -> Token {
        let life = Some(Duration::from_secs(life_s)).filter(|life| !life.is_zero());
        let (expires_at, renew_at) = (None, None);
        let mut token = Token { text, renewable, life, expires_at, renew_at, failures: 0 };
        token.extend(life);
        token
    }

    fn extend(&mut self, life: Option<Duration>) {
        let now = Instant::now();
        self.expires_at = life.map(|life| now + life);
        self.renew_at = life.map(|life| now + (life / 2).max(Duration::from_millis(500)));
        self.failures = 0;
    }

    fn is_expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= Instant::now())
    }
}

impl Session<'_> {
    /// A valid token, other than `refused`.
    pub async fn token(&self, refused: Option<&Secret>) -> Result<Secret> {
        let mut cached = self.vault.token.lock().await;
        let replaced = |token: &Token| match &self.vault.credentials {
            Credentials::Token(value) => value.current().is_ok_and(|text| text != token.text),
            _ => false,
        };
        cached
            .take_if(|token| refused == Some(&token.text) || token.is_expired() || replaced(token));
        if let Some(token) = &mut *cached {
            if token.renew_at.is_none_or(|at| Instant::now() < at) {
                return Ok(token.text.clone());
            }
            if token.renewable && self.renew_token(token).await.is_ok_and(|renewed| renewed) {
                return Ok(token.text.clone());
            }
        }
        let signed_in = self.sign_in().await;
        match (signed_in, &mut *cached) {
            (Ok(token), before) => {
                let text = token.text.clone();
                if before.as_ref().is_none_or(|before| before.text != text) {
                    self.vault.drop_leases();
                }
                *cached = Some(token);
                Ok(text)
            }
            // The one we have is good for a while.
            (Err(error), Some(token)) => {
                tracing::warn!(%error, "renewing the sign-in to Vault failed; will retry");
                let pause = RETRY.delay(token.failures, self.ambient.fraction());
                token.renew_at = Some(Instant::now() + pause);
                token.failures = token.failures.saturating_add(1);
                Ok(token.text.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Whether the token was given more time, about as much as at first.
    async fn renew_token(&self, token: &mut Token) -> Result<bool> {
        let path = ["auth", "token", "renew-self"];
        let (operation, body) = ("renew token", Some(json!({})));
        let response = self.call(operation, Method::POST, &path, Some(&token.text), body).await?;
        let Some(auth) = response.auth else { return Ok(false) };
        let life = Duration::from_secs(auth.lease_duration);
        let enough = !life.is_zero() && life >= token.life.unwrap_or_default() / 2;
        if enough {
            token.extend(Some(life));
        }
        Ok(enough)
    }

    async fn sign_in(&self) -> Result<Token> {
        let config = &self.vault.config;
        let (body, settings) = match &self.vault.credentials {
            Credentials::Token(value) => return self.look_up(value.current()?).await,
            Credentials::AppRole { role_id, secret_id } => {
                let (role_id, secret_id) = (role_id.current()?, secret_id.current()?);
                let body = json!({"role_id": role_id.expose(), "secret_id": secret_id.expose()});
                (body, "vault.role_id and vault.secret_id")
            }
            Credentials::Kubernetes => {
                let path = config.jwt_path.clone();
                let read = files::blocking(move || std::fs::read_to_string(path)).await;
                let jwt = read.map_err(|error| {
                    let why = format!("vault.jwt_path: {}: {error}", config.jwt_path.display());
                    Error::unavailable(SYSTEM, why).with_delivery(Delivery::NotSent)
                })?;
                (json!({"role": config.role, "jwt": jwt.trim()}), "vault.role and vault.jwt_path")
            }
        };
        let path: Vec<&str> =
            ["auth"].into_iter().chain(config.mount().split('/')).chain(["login"]).collect();
        let response = self.call("sign in", Method::POST, &path, None, Some(body)).await;
        let auth = response.map_err(|error| advise(error, settings))?.auth;
        let auth = auth.ok_or_else(|| Error::unavailable(SYSTEM, "it gave no token at sign-in"))?;
        Ok(Token::new(auth.client_token, auth.lease_duration, auth.renewable))
    }

    /// A token that we were given: how long it is valid.
    async fn look_up(&self, text: Secret) -> Result<Token> {
        let path = ["auth", "token", "lookup-self"];
        let response = self.call("look up token", Method::GET, &path, Some(&text), None).await;
        let data = response.map_err(|error| advise(error, "vault.token"))?.data.unwrap_or_default();
        let life_s = data.get("ttl").and_then(Value::as_u64).unwrap_or_default();
        let renewable = data.get("renewable").and_then(Value::as_bool).unwrap_or_default();
        Ok(Token::new(text, life_s, renewable))
    }

    /// How long a lease is extended; `None` if it is not.
    pub async fn renew_lease(&self, lease: &Lease) -> Result<Option<Duration>> {
        let token = self.token(None).await?;
        let (path, body) = (["sys", "leases", "renew"], json!({"lease_id": lease.id}));
        match self.call("renew lease", Method::PUT, &path, Some(&token), Some(body)).await {
            Ok(response) => Ok(Some(Duration::from_secs(response.lease_duration))),
            Err(error) if error.delivery() == Some(Delivery::Answered) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn read(&self, path: &str) -> Result<ReadSecret> {
        let segments: Vec<&str> = path.split('/').collect();
        let read = async |token: &Secret| {
            self.call("read secret", Method::GET, &segments, Some(token), None).await
        };
        let token = self.token(None).await?;
        let mut response = read(&token).await;
        // The token may have been revoked; then another helps.
        if is_forbidden(&response) {
            response = read(&self.token(Some(&token)).await?).await;
        }
        let Response { lease_id, lease_duration, renewable, data, .. } = response?;
        let data = data.ok_or_else(|| nothing_at(path))?;
        // Version 2 of a KV store wraps the data, next to its metadata.
        let wrapped = data.get("data").filter(|_| data.contains_key("metadata")).cloned();
        let data = match wrapped {
            Some(Value::Object(data)) => data,
            Some(_) => return Err(nothing_at(path)),
            None => data,
        };
        let life = Duration::from_secs(lease_duration);
        let leased = !lease_id.is_empty() && !life.is_zero();
        Ok(ReadSecret { data, lease: leased.then_some(Lease { id: lease_id, life, renewable }) })
    }

    /// A response that is a success. With `Delivery::Answered` Vault refused.
    async fn call(
        &self,
        operation: &str,
        method: Method,
        path: &[&str],
        token: Option<&Secret>,
        body: Option<Value>,
    ) -> Result<Response> {
        let mut url = self.vault.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        let mut request = self.target.request(method, url);
        if !self.vault.config.namespace.is_empty() {
            request = request.header("X-Vault-Namespace", &self.vault.config.namespace);
        }
        if let Some(token) = token {
            request = request.header("X-Vault-Token", token.expose());
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        let response = self.target.http(operation, request).await?;
        let status = response.status();
        let bytes = outbound::body(response, BODY_BYTES_MAX).await?;
        if status.is_success() {
            return if bytes.is_empty() {
                Ok(Response::default())
            } else {
                serde_json::from_slice(&bytes).map_err(|_| unexpected(operation, status))
            };
        }
        let sent: Vec<String> = token.iter().map(|token| token.expose().clone()).collect();
        let said = redact::message(&bytes, &sent);
        Err(refusal(operation, path, status, &said))
    }
}

impl ReadSecret {
    pub fn field(&self, path: &str, name: &str) -> Result<Secret, String> {
        match self.data.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Ok(Secret::from(text.as_str())),
            Some(Value::Number(number)) => Ok(Secret::new(number.to_string())),
            Some(_) => Err(format!("the field {name} of {path} in Vault is not text, or empty")),
            None => {
                let names: Vec<&str> = self.data.keys().map(String::as_str).collect();
                Err(format!("{path} in Vault has no field {name}; it has {}", names.join(", ")))
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{operation} {path} answered {status}{said}")]
struct Refused {
    operation: String,
    path: String,
    status: StatusCode,
    said: String,
}

fn refusal(operation: &str, path: &[&str], status: StatusCode, said: &str) -> Error {
    let said = match (status, said) {
        (StatusCode::NOT_FOUND, "") => {
            ": nothing is there; the path in a KV store of version 2 has data/ after the mount"
                .into()
        }
        (status, _) if status.is_redirection() => {
            ": it redirects; give the address of the active server in vault.address".into()
        }
        (_, "") => String::new(),
        (_, said) => format!(": {said}"),
    };
    let (operation, path) = (operation.to_owned(), path.join("/"));
    let refused = Refused { operation, path, status, said };
    Error::unavailable(SYSTEM, refused).with_delivery(Delivery::Answered)
}

fn is_forbidden<T>(result: &Result<T>) -> bool {
    match result {
        Err(Error::Unavailable { cause, .. }) => {
            cause.downcast_ref::<Refused>().is_some_and(|one| one.status == StatusCode::FORBIDDEN)
        }
        _ => false,
    }
}

/// Says which settings to check, if Vault refused them.
fn advise(error: Error, settings: &str) -> Error {
    match error {
        Error::Unavailable { why, delivery: Delivery::Answered, .. } => {
            Error::unavailable(SYSTEM, format!("{why}; check {settings}"))
                .with_delivery(Delivery::Answered)
        }
        other => other,
    }
}

fn nothing_at(path: &str) -> Error {
    Error::unavailable(SYSTEM, format!("there is nothing at {path}"))
        .with_delivery(Delivery::Answered)
}

/// Without what was in it: it may be a secret.
fn unexpected(operation: &str, status: StatusCode) -> Error {
    Error::unavailable(SYSTEM, format!("{operation} answered {status} and an unexpected body"))
}
