//! OAuth 2.0 on the wire: forms in, JSON out, errors as in RFC 6749.

use std::collections::HashMap;

use axum::Json;
use axum::body::Bytes;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;
use url::form_urlencoded;

use crate::{Class, Error};

/// A form with two tokens in it stays below this.
const FORM_BYTES_MAX: usize = 64 * 1024;

/// The error of an OAuth endpoint. `code` is one of the RFCs'.
#[derive(Debug)]
pub struct OAuthError {
    pub status: StatusCode,
    pub code: &'static str,
    pub why: String,
}

impl OAuthError {
    pub fn new(code: &'static str, why: impl Into<String>) -> OAuthError {
        OAuthError { status: StatusCode::BAD_REQUEST, code, why: why.into() }
    }

    pub fn with_status(self, status: StatusCode) -> OAuthError {
        OAuthError { status, ..self }
    }

    pub fn client(why: &str) -> OAuthError {
        OAuthError::new("invalid_client", why).with_status(StatusCode::UNAUTHORIZED)
    }
}

impl From<Error> for OAuthError {
    fn from(error: Error) -> OAuthError {
        match error.class() {
            Class::Transient => {
                let busy = matches!(error, Error::Busy { .. });
                let why = if busy { error.to_string() } else { "try again in a moment".into() };
                let status = if busy {
                    StatusCode::TOO_MANY_REQUESTS
                } else {
                    StatusCode::SERVICE_UNAVAILABLE
                };
                OAuthError::new("temporarily_unavailable", why).with_status(status)
            }
            Class::Terminal | Class::Conflict | Class::NotFound => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "an OAuth request failed");
                OAuthError::new("server_error", "internal error")
                    .with_status(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Class::Invalid | Class::Unauthenticated | Class::Forbidden => {
                OAuthError::new("invalid_request", error.to_string())
            }
        }
    }
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        let body = json!({"error": self.code, "error_description": self.why});
        let mut response = private(self.status, &body);
        if self.code == "invalid_client" {
            let scheme = HeaderValue::from_static("Basic realm=\"mainstay\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A response that must not be cached.
pub fn private(status: StatusCode, body: &impl Serialize) -> Response {
    (status, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

/// The fields of a form, each at most once.
pub struct Form(HashMap<String, String>);

impl Form {
    pub fn read(headers: &HeaderMap, body: &Bytes) -> Result<Form, OAuthError> {
        let invalid = |why: &str| OAuthError::new("invalid_request", why);
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_form = content_type.is_some_and(|text| {
            let essence = text.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
        });
        if !is_form {
            return Err(invalid("send a form: Content-Type: application/x-www-form-urlencoded"));
        }
        Form::parse(body)
    }

    /// The fields of a form or a query.
    pub fn parse(body: &[u8]) -> Result<Form, OAuthError> {
        let invalid = |why: &str| OAuthError::new("invalid_request", why);
        if body.len() > FORM_BYTES_MAX {
            return Err(invalid("the form is too large"));
        }
        let mut fields = HashMap::new();
        for (name, value) in form_urlencoded::parse(body) {
            if fields.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(invalid(&format!("`{name}` is given twice")));
            }
        }
        Ok(Form(fields))
    }

    /// A field; one that is empty counts as not given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn need(&self, name: &str) -> Result<&str, OAuthError> {
        self.get(name)
            .ok_or_else(|| OAuthError::new("invalid_request", format!("`{name}` is missing")))
    }
}

/// The client's credentials, from HTTP Basic or the form.
pub struct ClientCredentials {
    pub id: String,
    pub secret: Option<String>,
}

impl ClientCredentials {
    pub fn read(headers: &HeaderMap, form: &Form) -> Result<Option<ClientCredentials>, OAuthError> {
        let in_form = form.get("client_id").map(|id| ClientCredentials {
            id: id.to_owned(),
            secret: form.get("client_secret").map(str::to_owned),
        });
        let Some(basic) = basic(headers)? else { return Ok(in_form) };
        match in_form {
            Some(in_form) if in_form.secret.is_some() || in_form.id != basic.id => Err(
                OAuthError::new("invalid_request", "the client is given twice, and not the same"),
            ),
            _ => Ok(Some(basic)),
        }
    }
}

fn basic(headers: &HeaderMap) -> Result<Option<ClientCredentials>, OAuthError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let pair = value.to_str().ok().and_then(|text| {
        let (scheme, code) = text.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let bytes = STANDARD.decode(code.trim()).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (id, secret) = text.split_once(':')?;
        Some((unescape(id), unescape(secret)))
    });
    let (id, secret) = pair.ok_or_else(|| {
        OAuthError::client("the Authorization header must be `Basic` with base64 of ID:SECRET")
    })?;
    Ok(Some(ClientCredentials { id, secret: Some(secret) }))
}

/// RFC 6749 requires both halves to be form-encoded.
fn unescape(text: &str) -> String {
    let pairs = format!("v={}", text.replace('&', "%26").replace('=', "%3D"));
    form_urlencoded::parse(pairs.as_bytes()).map(|(_, value)| value.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Result<Form, OAuthError> {
        let mut headers = HeaderMap::new();
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        headers.insert(CONTENT_TYPE, form.parse().unwrap());
        Form::read(&headers, &Bytes::from(text.to_owned()))
    }

    fn with_basic(pair: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = format!("Basic {}", STANDARD.encode(pair));
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_form_has_each_field_once_and_is_a_form() {
        let read = form("a=1&b=x%20y&c=").unwrap();
        assert_eq!((read.get("a"), read.get("b"), read.get("c")), (Some("1"), Some("x y"), None));
        assert_eq!(form("a=1&a=2").err().unwrap().code, "invalid_request");
        assert!(form(&format!("a={}", "x".repeat(FORM_BYTES_MAX))).is_err());
        assert!(Form::read(&HeaderMap::new(), &Bytes::from("a=1")).is_err());
    }

    #[test]
    fn client_credentials_come_from_one_place() {
        let read = |headers: &HeaderMap, text: &str| {
            let read = ClientCredentials::read(headers, &form(text).unwrap());
            read.map(|found| found.map(|i| (i.id, i.secret.unwrap_or_default())))
                .map_err(|e| e.code)
        };
        let pair = |id: &str, secret: &str| Ok(Some((id.to_owned(), secret.to_owned())));
        let none = HeaderMap::new();
        assert_eq!(read(&none, "x=1"), Ok(None));
        assert_eq!(read(&none, "client_id=a&client_secret=b"), pair("a", "b"));
        assert_eq!(read(&with_basic("a:b:c"), "x=1"), pair("a", "b:c"));
        assert_eq!(read(&with_basic("a%3A:b%2Bc+d"), "x=1"), pair("a:", "b+c d"));
        assert_eq!(read(&with_basic("a:b=&c"), "client_id=a"), pair("a", "b=&c"));
        assert_eq!(read(&with_basic("a:b"), "client_id=z"), Err("invalid_request"));
        assert_eq!(read(&with_basic("a:b"), "client_id=a&client_secret=b"), Err("invalid_request"));
        assert_eq!(read(&with_basic("ab"), "x=1"), Err("invalid_client"));
    }
}
