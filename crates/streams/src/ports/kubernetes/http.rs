//! Sends HTTP requests, and maps error responses to [`ApiError`].

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;

use super::{Kubernetes, REQUEST};
use crate::model::watch::ApiError;

/// The longest response; no page of a list is longer.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

pub struct HttpRequest {
    pub method: Method,
    pub path: String,
    pub body: Option<(&'static str, Vec<u8>)>,
    pub representation: Representation,
}

/// Which parts of objects the API server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    Full,
    /// Metadata only, in a list.
    MetadataList,
    /// Metadata only, in a watch.
    Metadata,
}

impl HttpRequest {
    pub fn get(path: String) -> HttpRequest {
        HttpRequest { method: Method::GET, path, body: None, representation: Representation::Full }
    }

    pub fn json(method: Method, path: String, body: &serde_json::Value) -> HttpRequest {
        let body = Some(("application/json", body.to_string().into_bytes()));
        HttpRequest { method, path, body, representation: Representation::Full }
    }
}

/// An error response: a `Status` object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ErrorStatus {
    pub message: String,
    pub reason: String,
    pub code: u16,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

impl Kubernetes {
    /// Sends a request and reads the whole response.
    pub async fn http(&self, http: HttpRequest) -> Result<Bytes, ApiError> {
        let whole = async {
            let body = self.open(http).await?.into_body();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            body.map(|body| body.to_bytes())
                .map_err(|error| ApiError::Unreachable(error.to_string()))
        };
        match tokio::time::timeout(REQUEST, whole).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(ApiError::Unreachable(format!("no response within {} s", REQUEST.as_secs())))
            }
        }
    }

    /// Sends a request and returns the response as a stream.
    pub async fn open(&self, http: HttpRequest) -> Result<Response<Body>, ApiError> {
        let accept = match http.representation {
            Representation::Full => "application/json",
            Representation::MetadataList => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            Representation::Metadata => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
        };
        let mut request =
            Request::builder().method(http.method).uri(http.path).header(ACCEPT, accept);
        let body = match http.body {
            Some((kind, body)) => {
                request = request.header(CONTENT_TYPE, kind);
                Body::from(body)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| ApiError::Invalid(error.to_string()))?;
        let answer = self.client.send(request).await.map_err(unreachable)?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            status => {
                let (head, body) = answer.into_parts();
                let body = Limited::new(body, 1 << 20).collect().await;
                let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                Err(response_error(status, &head.headers, &body))
            }
        }
    }
}

fn unreachable(error: kube::Error) -> ApiError {
    // The innermost cause says what happened: "connection refused".
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    ApiError::Unreachable(cause.to_string())
}

fn response_error(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ApiError {
    let status_error =
        serde_json::from_slice::<ErrorStatus>(body).unwrap_or_else(|_| ErrorStatus {
            message: String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned(),
            ..ErrorStatus::default()
        });
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let wait = header.or(Some(status_error.details.retry_after_seconds)).filter(|s| *s > 0);
    api_error(status.as_u16(), status_error, wait.map(Duration::from_secs))
}

pub fn api_error(code: u16, status_error: ErrorStatus, wait: Option<Duration>) -> ApiError {
    let message =
        if status_error.message.is_empty() { format!("HTTP {code}") } else { status_error.message };
    match code {
        404 => ApiError::NotFound,
        409 if status_error.reason == "AlreadyExists" => ApiError::AlreadyExists,
        409 | 410 => ApiError::Conflict,
        401 => ApiError::Forbidden(format!("the credentials are not accepted: {message}")),
        403 => ApiError::Forbidden(message),
        429 | 503 | 504 => ApiError::Throttled(wait),
        500.. => ApiError::Unreachable(message),
        _ => ApiError::Invalid(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_error(code: u16, retry: Option<&'static str>, body: &str) -> ApiError {
        let mut headers = HeaderMap::new();
        if let Some(retry) = retry {
            headers.insert(RETRY_AFTER, retry.parse().unwrap());
        }
        response_error(StatusCode::from_u16(code).unwrap(), &headers, body.as_bytes())
    }

    #[test]
    fn each_error_response_is_mapped() {
        let seconds = |s| Some(Duration::from_secs(s));
        assert_eq!(status_error(404, None, "{}"), ApiError::NotFound);
        assert_eq!(
            status_error(409, None, r#"{"reason":"AlreadyExists"}"#),
            ApiError::AlreadyExists
        );
        assert_eq!(status_error(409, None, r#"{"reason":"Conflict"}"#), ApiError::Conflict);
        assert_eq!(status_error(429, Some("7"), "slow down"), ApiError::Throttled(seconds(7)));
        assert_eq!(status_error(429, None, "slow down"), ApiError::Throttled(None));
        let later = r#"{"details":{"retryAfterSeconds":2}}"#;
        assert_eq!(status_error(504, None, later), ApiError::Throttled(seconds(2)));
        assert_eq!(status_error(500, None, "oops"), ApiError::Unreachable("oops".into()));
        assert_eq!(status_error(422, None, r#"{"message":"no"}"#), ApiError::Invalid("no".into()));
        assert_eq!(
            status_error(403, None, r#"{"message":"cannot create resource \"jobs\""}"#),
            ApiError::Forbidden("cannot create resource \"jobs\"".into())
        );
    }
}
