//! Errors on the wire: one JSON format, which a domain may replace under its own prefix.
//!
//! A handler returns [`Error`]; the response carries it to the end of the pipeline, which writes
//! it, because only there the request's id and the prefix are known.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::PartialSchema as _;
use utoipa::openapi::{RefOr, Schema};

use super::RequestContext;
use crate::Error;
use crate::change::Refusal;
use crate::error::{Class, chain};

/// Writes an error in a domain's own format.
pub type ErrorMapper = Arc<dyn Fn(&Error, &RequestContext) -> Response + Send + Sync>;

/// Leaves the error for the pipeline to write.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = status(&self).into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// Writes an error in the kernel's format.
pub(super) fn render(error: &Error, context: &RequestContext) -> Response {
    let (field, oldest) = match error {
        Error::Invalid { field, .. } => (Some(field.as_str()), None),
        Error::Gone { oldest, .. } => (None, Some(*oldest)),
        _ => (None, None),
    };
    let error_body = Shape {
        class: error.class().label(),
        code: code(error),
        message: error.public_message(),
        field,
        oldest,
        request_id: &context.request_id,
    };
    let bytes = serde_json::to_vec(&Body { error: error_body }).expect("our own types serialise");
    let json = HeaderValue::from_static("application/json");
    (status(error), [(header::CONTENT_TYPE, json)], bytes).into_response()
}

#[derive(Serialize, utoipa::ToSchema)]
struct Body<'a> {
    #[schema(inline)]
    error: Shape<'a>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct Shape<'a> {
    /// What kind of error it is: invalid, unauthenticated, forbidden, not_found, conflict,
    /// transient or terminal.
    class: &'static str,
    /// Which error of its class it is.
    code: &'static str,
    message: String,
    /// What is wrong, if it was the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    /// Where to begin, if what was asked for is no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<i64>,
    /// The log has the rest under this id.
    request_id: &'a str,
}

/// Returns the schema for the OpenAPI document.
pub(super) fn schema() -> RefOr<Schema> {
    Body::schema()
}

/// Returns the status of an error; a good default for a domain's own format.
pub fn status(error: &Error) -> StatusCode {
    match error {
        Error::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Error::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
        Error::Busy { .. } => StatusCode::TOO_MANY_REQUESTS,
        Error::Gone { .. } => StatusCode::GONE,
        other => match other.class() {
            Class::Invalid => StatusCode::BAD_REQUEST,
            Class::Unauthenticated => StatusCode::UNAUTHORIZED,
            Class::Forbidden => StatusCode::FORBIDDEN,
            Class::NotFound => StatusCode::NOT_FOUND,
            Class::Conflict => StatusCode::CONFLICT,
            Class::Transient => StatusCode::SERVICE_UNAVAILABLE,
            Class::Terminal => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

fn code(error: &Error) -> &'static str {
    match error {
        Error::TooLarge { .. } => "too_large",
        Error::MethodNotAllowed { .. } => "method_not_allowed",
        Error::Busy { .. } => "busy",
        Error::Gone { .. } => "gone",
        Error::Unavailable { .. } => "unavailable",
        Error::Internal { .. } => "internal",
        Error::Refused(refusal) => match refusal {
            Refusal::Stale { .. } => "stale",
            Refusal::Missing(_) => "not_found",
            Refusal::Exists(_) => "exists",
            Refusal::Limit { .. } => "limit",
            Refusal::FenceLost(_) => "fence_lost",
            Refusal::Repeated { .. } => "repeated",
            Refusal::Mismatch { .. } => "mismatch",
            Refusal::TooLarge { .. } => "too_large",
        },
        other => other.class().label(),
    }
}

/// Adds the headers of an error in any format: how to authenticate, when to retry.
pub(super) fn add_headers(headers: &mut HeaderMap, error: &Error, context: &RequestContext) {
    match error {
        error if error.class() == Class::Unauthenticated => {
            let challenge = if context.token_sent {
                r#"Bearer realm="mainstay", error="invalid_token""#
            } else {
                r#"Bearer realm="mainstay""#
            };
            let value = HeaderValue::from_static(challenge);
            headers.entry(header::WWW_AUTHENTICATE).or_insert(value);
        }
        Error::Busy { retry_after_s } => {
            headers.entry(header::RETRY_AFTER).or_insert((*retry_after_s).into());
        }
        Error::Unavailable { .. } => {
            headers.entry(header::RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
        }
        _ => {}
    }
}

/// Logs the error with its sources.
pub(super) fn log(error: &Error, context: &RequestContext) {
    let (request_id, path) = (&context.request_id, &context.path);
    match error.class() {
        Class::Terminal => tracing::error!(%request_id, %path, "{}", chain(error)),
        Class::Transient => tracing::warn!(%request_id, %path, "{}", chain(error)),
        _ => tracing::debug!(%request_id, %path, "{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use axum::http::Method;

    async fn rendered(error: Error) -> (StatusCode, HeaderMap, serde_json::Value) {
        let context = RequestContext::detached("r1", Method::GET, "/x");
        let mut response = render(&error, &context);
        add_headers(response.headers_mut(), &error, &context);
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn every_kind_of_error_has_its_status_and_code() {
        let key = || Key::new("widget", "a");
        let problem = crate::identity::TokenProblem::Expired;
        let unavailable = Error::unavailable("the store", "password=hunter2");
        let table = [
            (Error::invalid("size", "must be 1 to 9"), 400, "invalid"),
            (Error::TooLarge { limit_bytes: 5 }, 413, "too_large"),
            (Error::MethodNotAllowed { method: "PUT".into() }, 405, "method_not_allowed"),
            (Error::Unauthenticated { problem, message: "no".into() }, 401, "unauthenticated"),
            (Error::Forbidden("no".into()), 403, "forbidden"),
            (Error::NotFound("x".into()), 404, "not_found"),
            (Error::Conflict("x".into()), 409, "conflict"),
            (Error::coded(36, Class::Conflict, "the name is taken"), 409, "conflict"),
            (Error::coded(15, Class::Unauthenticated, "no"), 401, "unauthenticated"),
            (Refusal::Missing(key()).into(), 404, "not_found"),
            (Refusal::Stale { key: key(), expected: 1, found: 2 }.into(), 409, "stale"),
            (Error::Busy { retry_after_s: 3 }, 429, "busy"),
            (unavailable, 503, "unavailable"),
            (Error::internal("x", "password=hunter2"), 500, "internal"),
        ];
        for (error, status, code) in table {
            let text = error.to_string();
            let (is, headers, body) = rendered(error).await;
            assert_eq!(is.as_u16(), status, "{text}");
            assert_eq!(body["error"]["code"], code, "{text}");
            assert_eq!(body["error"]["request_id"], "r1");
            assert!(!body.to_string().contains("hunter2"), "{body}");
            let wants_retry = matches!(status, 429 | 503);
            assert_eq!(headers.contains_key(header::RETRY_AFTER), wants_retry, "{text}");
            assert_eq!(headers.contains_key(header::WWW_AUTHENTICATE), status == 401, "{text}");
        }
    }

    #[tokio::test]
    async fn an_invalid_field_is_named() {
        let (_, _, body) = rendered(Error::invalid("spec.size", "must be 1 to 9")).await;
        assert_eq!(body["error"]["field"], "spec.size");
        assert_eq!(body["error"]["message"], "spec.size: must be 1 to 9");
    }
}
