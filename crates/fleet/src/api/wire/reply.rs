//! Responses and errors in the wire format of the existing service.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use kernel::http::RequestContext;
pub use kernel::http::respond_with as of;
use kernel::identity::TokenProblem;
use kernel::{Error, Refusal};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Fleet;
use crate::model::error_code::{ErrorCode, code_of};
use crate::model::kind::Kind;
use crate::store::index::{FeedKey, Row};

pub const OPERATION_ID: HeaderName = HeaderName::from_static("x-operation-id");

/// Responds with compact JSON and a newline.
pub fn json(status: u16, value: &impl Serialize) -> Response {
    json_line(status, serde_json::to_vec(value).expect("our own types serialise"))
}

/// Responds with JSON that is rendered already, and a newline.
pub fn json_line(status: u16, bytes: Vec<u8>) -> Response {
    json_body(status, append_newline(bytes).into())
}

/// Responds with a list that has one page.
pub fn one_page(kind: &str, items: Vec<Value>) -> Response {
    let total = items.len();
    json(200, &json!({ "kind": kind, "page": 1, "size": total, "total": total, "items": items }))
}

/// Responds with a list of rendered rows between its head and its end.
pub fn list(
    head: &str,
    rows: &[Arc<Row>],
    end: &str,
    render: impl Fn(&Row, &mut Vec<u8>),
) -> Response {
    let mut out = Vec::with_capacity(128 + rows.len() * 1024);
    out.extend_from_slice(head.as_bytes());
    for (i, row) in rows.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        render(row, &mut out);
    }
    out.extend_from_slice(end.as_bytes());
    json_line(200, out)
}

pub fn append_newline(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.push(b'\n');
    bytes
}

/// Responds with JSON that is rendered already, with its newline.
pub fn json_body(status: u16, bytes: Bytes) -> Response {
    with_status(status, Body::from(bytes))
}

/// Responds with an empty body of type JSON, as existing clients expect.
pub fn empty(status: u16) -> Response {
    with_status(status, Body::empty())
}

fn with_status(status: u16, body: Body) -> Response {
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    response
}

/// The version of a list. A client that has this version gets no body.
pub struct ListEtag(String);

impl ListEtag {
    pub fn new(fleet: &Fleet, feed: &FeedKey) -> ListEtag {
        ListEtag(format!("\"{}-{}\"", fleet.index.newest(feed), fleet.edition))
    }

    pub fn is_known(&self, headers: &HeaderMap) -> bool {
        let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let plain = |tag: &str| tag.trim().trim_start_matches("W/") == self.0;
        known.is_some_and(|known| known.split(',').any(plain))
    }

    pub fn unchanged(&self) -> Response {
        let mut response = empty(304);
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

/// Returns the reason of an error for a client.
fn reason_of(error: &Error, context: &RequestContext) -> String {
    match error {
        Error::Internal { .. } => ErrorCode::General.reason().into(),
        Error::NotFound(_) if !context.routed() => {
            format!("The requested resource '{}' doesn't exist", context.path)
        }
        Error::NotFound(_) | Error::Refused(Refusal::Missing(_)) => {
            ErrorCode::NotFound.reason().into()
        }
        Error::MethodNotAllowed { method } if !context.routed() => {
            format!("method: {method} is not allowed or not yet implemented for {}", context.path)
        }
        other => other.public_message(),
    }
}

/// Writes an error as the API of the kind does; returns its code, too.
pub fn error(kind: &Kind, error: &Error, context: &RequestContext) -> (ErrorCode, Response) {
    if let Error::Unauthenticated { problem, message } = error {
        return (ErrorCode::Unauthenticated, unauthenticated(kind, *problem, message));
    }
    let code = code_of(error);
    let reason = reason_of(error, context);
    let mut body = ErrorBody::new(kind, code, &reason);
    let unavailable = matches!(error, Error::Unavailable { .. });
    let status = if unavailable { 503 } else { code.http() };
    if !context.routed() {
        return (code, json(status, &body));
    }
    body.operation_id = Some(&context.request_id);
    let mut response = json(status, &body);
    if code == ErrorCode::Unauthenticated {
        response.headers_mut().extend(realm(kind));
    }
    (code, response)
}

/// Returns the header that names the realm of the API.
fn realm(kind: &Kind) -> Option<(HeaderName, HeaderValue)> {
    let realm = format!("Bearer realm=\"{}/v1\"", kind.file.codes);
    Some((WWW_AUTHENTICATE, HeaderValue::from_str(&realm).ok()?))
}

/// Writes an authentication error, which is indented and has no operation id.
fn unauthenticated(kind: &Kind, problem: TokenProblem, message: &str) -> Response {
    let reason = match problem {
        TokenProblem::Missing => {
            "Request doesn't contain the 'Authorization' header or the 'cs_jwt' cookie"
        }
        TokenProblem::OtherScheme => "Only authentication type 'Bearer' is supported",
        TokenProblem::Malformed => "Bearer token is malformed",
        TokenProblem::Expired => "Bearer token is expired",
        TokenProblem::Untrusted => message,
    };
    let ErrorBody { id, kind: title, href, code, .. } =
        ErrorBody::new(kind, ErrorCode::Unauthenticated, reason);
    let body = json!({ "kind": title, "id": id, "href": href, "code": code, "reason": reason });
    let mut response = with_status(401, Body::from(format!("{body:#}")));
    response.headers_mut().extend(realm(kind));
    response
}
