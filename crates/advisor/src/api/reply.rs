//! Answers in the shapes of the existing service.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use kernel::Error;
use kernel::http::status;
use serde::Serialize;

use crate::model::wire::outcome;

/// Responds with JSON.
pub fn json(status: u16, value: &impl Serialize) -> Response {
    text(status, serde_json::to_vec(value).expect("our own types serialise"))
}

/// Responds with JSON that is written already.
pub fn text(status: u16, json: impl Into<Body>) -> Response {
    let mut response = Response::new(json.into());
    let content_type = HeaderValue::from_static("application/json;charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    response
}

/// Responds that something was done.
pub fn success(status: u16, message: &str) -> Response {
    json(status, &outcome(status, message))
}

/// Writes an error. A method that a path does not have has no body there, either.
pub fn error(error: &Error) -> Response {
    let status = status(error);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        return response;
    }
    let message = match error {
        // A whole document has no field.
        Error::Invalid { field, message } if field.is_empty() => message.clone(),
        other => other.public_message(),
    };
    json(status.as_u16(), &outcome(status.as_u16(), &message))
}
