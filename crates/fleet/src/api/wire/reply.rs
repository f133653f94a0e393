//! What answers look like on the wire, errors too.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use kernel::http::RequestContext;
use kernel::identity::TokenProblem;
use kernel::{Error, Refusal};
use serde::Serialize;

use crate::Fleet;
use crate::model::error_code::{ErrorCode, code_of};
use crate::model::kind::Kind;

pub const OPERATION_ID: HeaderName = HeaderName::from_static("x-operation-id");

/// A JSON answer: compact, with a line end, and the operation's id.
pub fn json(context: &RequestContext, status: u16, value: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(value).expect("our own types serialise");
    json_line(context, status, bytes)
}

/// A JSON answer that is rendered already.
pub fn json_line(context: &RequestContext, status: u16, bytes: Vec<u8>) -> Response {
    json_body(context, status, append_newline(bytes).into())
}

/// An answer ends with a line end.
pub fn append_newline(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.push(b'\n');
    bytes
}

/// A whole answer, with its line end.
pub fn json_body(context: &RequestContext, status: u16, bytes: Bytes) -> Response {
    with_status(context, status, Body::from(bytes))
}

/// Nothing, which is JSON all the same: existing clients are used to it.
pub fn empty(context: &RequestContext, status: u16) -> Response {
    with_status(context, status, Body::empty())
}

fn with_status(context: &RequestContext, status: u16, body: Body) -> Response {
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    with_operation(context, response)
}

/// What every answer of a route has: the operation's id, and that it depends on who asks.
pub fn with_operation(context: &RequestContext, mut response: Response) -> Response {
    response.headers_mut().insert(VARY, HeaderValue::from_static("Authorization"));
    if let Ok(id) = HeaderValue::from_str(&context.request_id) {
        response.headers_mut().insert(OPERATION_ID, id);
    }
    response
}

/// Names a list as it is now. Whoever has it already is answered with that alone.
pub struct ListEtag(String);

impl ListEtag {
    /// `newest` is the number of the newest change of anything in it.
    pub fn new(fleet: &Fleet, newest: i64) -> ListEtag {
        ListEtag(format!("\"{newest}-{}\"", fleet.edition))
    }

    pub fn is_known(&self, headers: &HeaderMap) -> bool {
        let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let plain = |tag: &str| tag.trim().trim_start_matches("W/") == self.0;
        known.is_some_and(|known| known.split(',').any(plain))
    }

    pub fn unchanged(&self, context: &RequestContext) -> Response {
        let mut response = empty(context, 304);
        response.headers_mut().remove(CONTENT_TYPE);
        self.on(response)
    }

    pub fn on(&self, mut response: Response) -> Response {
        if let Ok(tag) = HeaderValue::from_str(&self.0) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}

#[derive(Serialize)]
pub struct ErrorBody<'a> {
    pub reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<&'a str>,
    pub id: String,
    pub kind: &'static str,
    pub href: String,
    pub code: String,
}

impl<'a> ErrorBody<'a> {
    pub fn new(kind: &Kind, code: ErrorCode, reason: &'a str) -> ErrorBody<'a> {
        let number = code.number();
        ErrorBody {
            reason,
            operation_id: None,
            id: number.to_string(),
            kind: "Error",
            href: format!("{}/v1/errors/{number}", kind.prefix),
            code: format!("{}-{number}", kind.file.codes),
        }
    }
}

/// What an error says to a client.
fn reason_of(error: &Error) -> String {
    match error {
        Error::Internal { .. } => ErrorCode::General.reason().into(),
        Error::NotFound(_) | Error::Refused(Refusal::Missing(_)) => {
            ErrorCode::NotFound.reason().into()
        }
        other => other.to_string(),
    }
}

/// Writes an error as the API of its path does.
pub fn error(fleet: &Fleet, error: &Error, context: &RequestContext) -> Response {
    let catalogue = fleet.catalogue();
    let Some((kind, _)) = catalogue.kind_of_path(&context.path) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if let Error::Unauthenticated { problem, message } = error {
        fleet.counts.error(&format!("{}-{}", kind.file.codes, ErrorCode::Unauthenticated.number()));
        return unauthenticated(kind, *problem, message);
    }
    let code = code_of(error);
    let reason = reason_of(error);
    let mut body = ErrorBody::new(kind, code, &reason);
    fleet.counts.error(&body.code);
    let unavailable = matches!(error, Error::Unavailable { .. });
    let status = if unavailable { 503 } else { code.http() };
    if !context.routed() {
        let mut response =
            json_line(context, status, serde_json::to_vec(&body).unwrap_or_default());
        response.headers_mut().remove(OPERATION_ID);
        response.headers_mut().remove(VARY);
        return response;
    }
    body.operation_id = Some(&context.request_id);
    let mut response = json(context, status, &body);
    if code == ErrorCode::Unauthenticated {
        response.headers_mut().extend(realm(kind));
    }
    response
}

/// Where whoever is not known would have to be known.
fn realm(kind: &Kind) -> Option<(HeaderName, HeaderValue)> {
    let realm = format!("Bearer realm=\"{}/v1\"", kind.file.codes);
    Some((WWW_AUTHENTICATE, HeaderValue::from_str(&realm).ok()?))
}

/// The authentication's own shape: indented, and without the operation's id.
fn unauthenticated(kind: &Kind, problem: TokenProblem, message: &str) -> Response {
    #[derive(Serialize)]
    struct Shape<'a> {
        kind: &'static str,
        id: &'static str,
        href: String,
        code: String,
        reason: &'a str,
    }
    let reason = match problem {
        TokenProblem::Missing => {
            "Request doesn't contain the 'Authorization' header or the 'cs_jwt' cookie"
        }
        TokenProblem::OtherScheme => "Only authentication type 'Bearer' is supported",
        TokenProblem::Malformed => "Bearer token is malformed",
        TokenProblem::Expired => "Bearer token is expired",
        TokenProblem::Untrusted => message,
    };
    let ErrorBody { href, code, .. } = ErrorBody::new(kind, ErrorCode::Unauthenticated, reason);
    let shape = Shape { kind: "Error", id: "15", href, code, reason };
    let bytes = serde_json::to_vec_pretty(&shape).unwrap_or_default();
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.extend(realm(kind));
    response
}

use axum::response::IntoResponse as _;

/// The mapper of errors for all paths of the fleet.
pub fn mapper(fleet: Arc<Fleet>) -> kernel::http::ErrorMapper {
    Arc::new(move |failure, context| error(&fleet, failure, context))
}
