//! Signing in: the device grant and the refresh of tokens, against any OIDC issuer.

use std::time::Duration;

use kernel::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::{Context, Refresh};
use crate::error::{Error, Result, class_of};

/// What we need of a discovery document.
#[derive(Debug, Deserialize)]
pub struct Discovery {
    pub token_endpoint: String,
    pub device_authorization_endpoint: Option<String>,
    pub revocation_endpoint: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct DeviceCode {
    pub device_code: String,
    pub user_code: String,
    pub verification_uri: String,
    pub verification_uri_complete: Option<String>,
    pub expires_in: u64,
    #[serde(default = "interval_default")]
    pub interval: u64,
}

/// RFC 8628's, when the issuer names none.
fn interval_default() -> u64 {
    5
}

/// Tokens that an issuer gave.
#[derive(Deserialize)]
pub struct Grant {
    pub access_token: String,
    pub expires_in: Option<u64>,
    pub refresh_token: Option<String>,
}

impl Grant {
    /// Into a context; a refresh token stays unless a new one came.
    pub fn store(self, context: &mut Context, now: Timestamp) {
        context.token = Some(self.access_token);
        context.token_until = self.expires_in.map(|s| now.plus(Duration::from_secs(s)));
        if let (Some(token), Some(refresh)) = (self.refresh_token, &mut context.refresh) {
            refresh.token = token;
        }
    }
}

pub async fn discover(http: &reqwest::Client, issuer: &str) -> Result<Discovery> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let response =
        http.get(&url).timeout(TIMEOUT).send().await.map_err(|e| unreachable(&url, e))?;
    let (status, body) = read(&url, response).await?;
    if !status.is_success() {
        return Err(Error::Server {
            class: class_of(None, status.as_u16()),
            message: format!(
                "{url} answered {status}: an issuer must serve its discovery document there; name it with --issuer"
            ),
            field: None,
            request_id: None,
        });
    }
    parse(&url, body)
}

pub async fn device_code(
    http: &reqwest::Client,
    endpoint: &str,
    client_id: &str,
) -> Result<DeviceCode> {
    match form(http, endpoint, &[("client_id", client_id), ("scope", "openid offline_access")])
        .await?
    {
        Ok(code) => Ok(code),
        Err(error) => Err(error.into_error(endpoint)),
    }
}

/// Polls until the person has confirmed or denied the code. `wait` is how time passes.
pub async fn poll_device<W: Future<Output = ()>>(
    http: &reqwest::Client,
    token_endpoint: &str,
    client_id: &str,
    code: &DeviceCode,
    wait: impl Fn(Duration) -> W,
) -> Result<Grant> {
    let mut interval = Duration::from_secs(code.interval.max(1));
    let mut waited = Duration::ZERO;
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", &code.device_code),
        ("client_id", client_id),
    ];
    while waited < Duration::from_secs(code.expires_in) {
        wait(interval).await;
        waited += interval;
        match form(http, token_endpoint, &fields).await? {
            Ok(grant) => return Ok(grant),
            Err(error) if error.error == "authorization_pending" => {}
            Err(error) if error.error == "slow_down" => interval += Duration::from_secs(5),
            Err(error) => return Err(error.into_error(token_endpoint)),
        }
    }
    Err(Error::TimedOut("nobody confirmed the code in time; run `mainstay login` again".into()))
}

pub async fn refresh(http: &reqwest::Client, refresh: &Refresh) -> Result<Grant> {
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.token.as_str()),
        ("client_id", refresh.client_id.as_str()),
    ];
    match form(http, &refresh.token_endpoint, &fields).await? {
        Ok(grant) => Ok(grant),
        Err(error) => Err(error.into_error(&refresh.token_endpoint)),
    }
}

/// Revokes a refresh token, if the issuer offers that.
pub async fn revoke(http: &reqwest::Client, refresh: &Refresh) -> Result<()> {
    let Some(endpoint) = &refresh.revocation_endpoint else {
        crate::output::say("the issuer offers no revocation: its token is good until it expires");
        return Ok(());
    };
    let fields = [
        ("token", refresh.token.as_str()),
        ("token_type_hint", "refresh_token"),
        ("client_id", refresh.client_id.as_str()),
    ];
    match form::<Value>(http, endpoint, &fields).await? {
        Ok(_) => Ok(()),
        Err(error) => Err(error.into_error(endpoint)),
    }
}

/// An error response of an issuer.
struct OAuthError {
    error: String,
    description: String,
    status: u16,
}

impl OAuthError {
    fn into_error(self, endpoint: &str) -> Error {
        let class = match self.error.as_str() {
            "" => class_of(None, self.status),
            "access_denied" => kernel::Class::Forbidden,
            // Expired and revoked tokens and codes: sign in again.
            "invalid_grant" | "expired_token" | "invalid_token" => kernel::Class::Unauthenticated,
            _ => class_of(None, self.status),
        };
        let message = format!("{endpoint} refused: {} {}", self.error, self.description);
        Error::Server { class, message: message.trim_end().into(), field: None, request_id: None }
    }
}

const TIMEOUT: Duration = Duration::from_secs(30);

async fn form<T: DeserializeOwned>(
    http: &reqwest::Client,
    endpoint: &str,
    fields: &[(&str, &str)],
) -> Result<Result<T, OAuthError>> {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let response = http
        .post(endpoint)
        .timeout(TIMEOUT)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json")
        .body(body)
        .send()
        .await
        .map_err(|e| unreachable(endpoint, e))?;
    let (status, body) = read(endpoint, response).await?;
    if status.is_success() {
        return parse(endpoint, body).map(Ok);
    }
    // OAuth says `"error": "code"`; one of our servers that refused earlier, `"error": {…}`.
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours = word(&body["error"]["message"]);
    let description = if ours.is_empty() { word(&body["error_description"]) } else { ours };
    Ok(Err(OAuthError { error: word(&body["error"]), description, status: status.as_u16() }))
}

fn unreachable(url: &str, source: reqwest::Error) -> Error {
    Error::Unreachable { server: url.into(), source: source.without_url() }
}

async fn read(url: &str, response: reqwest::Response) -> Result<(reqwest::StatusCode, Value)> {
    let status = response.status();
    let text = response.text().await.map_err(|e| unreachable(url, e))?;
    Ok((status, serde_json::from_str(&text).unwrap_or_default()))
}

fn parse<T: DeserializeOwned>(url: &str, body: Value) -> Result<T> {
    serde_json::from_value(body)
        .map_err(|e| Error::BadResponse { server: url.into(), what: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_keeps_its_token_unless_a_new_one_came() {
        let old = Refresh { token: "old".into(), token_endpoint: "e".into(), ..Refresh::default() };
        let mut context = Context { refresh: Some(old), ..Context::default() };
        let grant = |refresh: Option<&str>| Grant {
            access_token: "a".into(),
            expires_in: Some(60),
            refresh_token: refresh.map(str::to_owned),
        };
        grant(None).store(&mut context, Timestamp(1000));
        assert_eq!(context.token_until, Some(Timestamp(61_000)));
        assert_eq!(context.refresh.as_ref().map(|r| r.token.as_str()), Some("old"));
        grant(Some("new")).store(&mut context, Timestamp(1000));
        assert_eq!(context.refresh.as_ref().map(|r| r.token.as_str()), Some("new"));
    }
}
