//! Sends HTTP requests, and maps error responses to [`ApiError`].

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kernel::Error;
use kernel::outbound::{Delivery, Failure};
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;

use crate::Client;

/// The longest response; no page of a list is longer.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

#[derive(Debug, Clone)]
pub struct HttpRequest {
    operation: &'static str,
    method: Method,
    path: String,
    /// The content type and the content.
    body: Option<(&'static str, Bytes)>,
    accept: &'static str,
}

impl HttpRequest {
    fn new(operation: &'static str, method: Method, path: String) -> HttpRequest {
        HttpRequest { operation, method, path, body: None, accept: "application/json" }
    }

    pub fn get(path: String) -> HttpRequest {
        HttpRequest::new("get", Method::GET, path)
    }

    pub fn list(path: String, metadata_only: bool) -> HttpRequest {
        let request = HttpRequest::new("list", Method::GET, path);
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        if metadata_only { HttpRequest { accept, ..request } } else { request }
    }

    pub fn watch(path: String, metadata_only: bool) -> HttpRequest {
        let request = HttpRequest::new("watch", Method::GET, path);
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        if metadata_only { HttpRequest { accept, ..request } } else { request }
    }

    pub fn create(path: String, body: &Value) -> HttpRequest {
        HttpRequest::new("create", Method::POST, path).with("application/json", body)
    }

    pub fn update(path: String, body: &Value) -> HttpRequest {
        HttpRequest::new("update", Method::PUT, path).with("application/json", body)
    }

    pub fn merge_patch(path: String, patch: &Value) -> HttpRequest {
        let request = HttpRequest::new("patch", Method::PATCH, path);
        request.with("application/merge-patch+json", patch)
    }

    /// A server-side apply.
    pub fn apply(path: String, object: &Value) -> HttpRequest {
        let request = HttpRequest::new("apply", Method::PATCH, path);
        request.with("application/apply-patch+yaml", object)
    }

    pub fn delete(path: String, options: &Value) -> HttpRequest {
        HttpRequest::new("delete", Method::DELETE, path).with("application/json", options)
    }

    fn with(mut self, content_type: &'static str, body: &Value) -> HttpRequest {
        self.body = Some((content_type, body.to_string().into()));
        self
    }

    fn build(&self) -> Result<Request<Body>, HttpError> {
        let request = Request::builder().method(self.method.clone()).uri(&self.path);
        let request = request.header(ACCEPT, self.accept);
        let built = match &self.body {
            Some((content_type, body)) => {
                request.header(CONTENT_TYPE, *content_type).body(Body::from(body.to_vec()))
            }
            None => request.body(Body::empty()),
        };
        built.map_err(|error| {
            let message = error.to_string();
            HttpError::Response(ErrorResponse { code: 400, message, ..ErrorResponse::default() })
        })
    }
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("{0}")]
    Response(ErrorResponse),
    /// No response, so the request may have been carried out.
    #[error("{0}")]
    NoResponse(String),
}

/// An error response: a `Status` object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, from = "RawStatus")]
pub struct ErrorResponse {
    pub code: u16,
    pub reason: String,
    /// The message of Kubernetes, which names the verb and the resource.
    pub message: String,
    /// When the server allows a retry.
    pub retry_after: Option<Duration>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawStatus {
    message: String,
    reason: String,
    code: u16,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

impl From<RawStatus> for ErrorResponse {
    fn from(RawStatus { message, reason, code, details }: RawStatus) -> ErrorResponse {
        let wait = Some(details.retry_after_seconds).filter(|seconds| *seconds > 0);
        ErrorResponse { code, reason, message, retry_after: wait.map(Duration::from_secs) }
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "HTTP {}", self.code),
            message => f.write_str(message),
        }
    }
}

impl ErrorResponse {
    /// An API server that answers with a `Status` works, also if a webhook of it failed; anything
    /// else may come from a proxy in front of it.
    fn delivery(&self) -> Delivery {
        match self.code {
            429 => Delivery::Throttled,
            500.. if self.reason.is_empty() => Delivery::Unknown,
            _ => Delivery::Answered,
        }
    }

    fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ErrorResponse {
        let read = serde_json::from_slice::<ErrorResponse>(body);
        let read = read.unwrap_or_else(|_| ErrorResponse {
            message: String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned(),
            ..ErrorResponse::default()
        });
        let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let header = header.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        ErrorResponse { code: status.as_u16(), retry_after: header.or(read.retry_after), ..read }
    }
}

/// Why the API server did not carry out a request. All of them are retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    #[error("the object does not exist")]
    NotFound,
    #[error("an object of that name exists")]
    AlreadyExists,
    /// The uid or the resource version differs.
    #[error("the object was changed concurrently")]
    Conflict,
    /// The message of Kubernetes, which names the verb and the resource.
    #[error("not allowed: {0}")]
    Forbidden(String),
    #[error("refused: {0}")]
    Invalid(String),
    /// With the time to wait, if the server gave one.
    #[error("the API server is throttling requests")]
    Throttled(Option<Duration>),
    /// No response, so the request may have been carried out.
    #[error("the API server is unreachable: {0}")]
    Unreachable(String),
}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> ApiError {
        match error {
            HttpError::Response(response) => response.into(),
            HttpError::NoResponse(why) => ApiError::Unreachable(why),
        }
    }
}

impl From<ErrorResponse> for ApiError {
    fn from(response: ErrorResponse) -> ApiError {
        let message = response.to_string();
        match response.code {
            404 => ApiError::NotFound,
            409 if response.reason == "AlreadyExists" => ApiError::AlreadyExists,
            409 | 410 => ApiError::Conflict,
            401 => ApiError::Forbidden(format!("the credentials are not accepted: {message}")),
            403 => ApiError::Forbidden(message),
            429 | 503 | 504 => ApiError::Throttled(response.retry_after),
            500.. => ApiError::Unreachable(message),
            _ => ApiError::Invalid(message),
        }
    }
}

impl Client {
    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: HttpRequest) -> Result<Bytes, HttpError> {
        self.call(&request, async || {
            let body = self.exchange(&request).await?.into_body();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            body.map(|body| body.to_bytes())
                .map_err(|error| HttpError::NoResponse(error.to_string()))
        })
        .await
    }

    /// Sends a request and returns the response as a stream.
    pub async fn open(&self, request: HttpRequest) -> Result<Response<Body>, HttpError> {
        self.call(&request, async || self.exchange(&request).await).await
    }

    async fn call<T, F>(
        &self,
        request: &HttpRequest,
        exchange: impl Fn() -> F,
    ) -> Result<T, HttpError>
    where
        F: Future<Output = Result<T, HttpError>>,
    {
        let idempotent = request.method != Method::POST;
        let called = self.target.call(request.operation, idempotent, |_| async {
            exchange().await.map_err(Failure::from)
        });
        called.await.map_err(HttpError::from)
    }

    async fn exchange(&self, request: &HttpRequest) -> Result<Response<Body>, HttpError> {
        let response = self.kube.send(request.build()?).await.map_err(no_response)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, 1 << 20).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Err(HttpError::Response(ErrorResponse::read(head.status, &head.headers, &body)))
    }
}

/// The outbound policy passes errors of the kernel; the cause of each is the [`HttpError`].
impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        let (delivery, retry_after) = match &error {
            HttpError::NoResponse(_) => (Delivery::Unknown, None),
            HttpError::Response(response) => (response.delivery(), response.retry_after),
        };
        let error = Error::unavailable("the API server", error);
        Failure { retry_after, ..Failure::new(delivery, error) }
    }
}

impl From<Error> for HttpError {
    fn from(error: Error) -> HttpError {
        let Error::Unavailable { cause, .. } = error else {
            return HttpError::NoResponse(error.to_string());
        };
        match cause.downcast::<HttpError>() {
            Ok(error) => *error,
            // The breaker is open, or the timeout passed.
            Err(why) => HttpError::NoResponse(why.to_string()),
        }
    }
}

fn no_response(error: kube::Error) -> HttpError {
    // The innermost cause says what happened: "connection refused".
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    HttpError::NoResponse(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, retry: Option<&'static str>, body: &str) -> ApiError {
        let mut headers = HeaderMap::new();
        if let Some(retry) = retry {
            headers.insert(RETRY_AFTER, retry.parse().unwrap());
        }
        let status = StatusCode::from_u16(code).unwrap();
        ErrorResponse::read(status, &headers, body.as_bytes()).into()
    }

    #[test]
    fn only_a_missing_or_a_proxys_response_counts_against_the_api_server() {
        let delivery = |code: u16, reason: &str| {
            let reason = reason.to_owned();
            let response = ErrorResponse { code, reason, ..ErrorResponse::default() };
            let failure = Failure::from(HttpError::Response(response.clone()));
            assert_eq!(HttpError::from(failure.error), HttpError::Response(response));
            failure.delivery
        };
        for code in [404, 409, 410, 422] {
            assert_eq!(delivery(code, ""), Delivery::Answered, "{code}");
        }
        assert_eq!(delivery(500, "InternalError"), Delivery::Answered, "a webhook failed");
        assert_eq!(delivery(502, ""), Delivery::Unknown);
        assert_eq!(delivery(429, "TooManyRequests"), Delivery::Throttled);
        let lost = Failure::from(HttpError::NoResponse("reset".into()));
        assert_eq!(lost.delivery, Delivery::Unknown);
        assert_eq!(HttpError::from(lost.error), HttpError::NoResponse("reset".into()));
    }

    #[test]
    fn each_error_response_is_mapped() {
        let seconds = |s| Some(Duration::from_secs(s));
        assert_eq!(error(404, None, "{}"), ApiError::NotFound);
        assert_eq!(error(409, None, r#"{"reason":"AlreadyExists"}"#), ApiError::AlreadyExists);
        assert_eq!(error(409, None, r#"{"reason":"Conflict"}"#), ApiError::Conflict);
        assert_eq!(error(429, Some("7"), "slow down"), ApiError::Throttled(seconds(7)));
        assert_eq!(error(429, None, "slow down"), ApiError::Throttled(None));
        let later = r#"{"details":{"retryAfterSeconds":2}}"#;
        assert_eq!(error(504, None, later), ApiError::Throttled(seconds(2)));
        assert_eq!(error(500, None, "oops"), ApiError::Unreachable("oops".into()));
        assert_eq!(error(422, None, r#"{"message":"no"}"#), ApiError::Invalid("no".into()));
        assert_eq!(
            error(403, None, r#"{"message":"cannot create resource \"jobs\""}"#),
            ApiError::Forbidden("cannot create resource \"jobs\"".into())
        );
    }
}
