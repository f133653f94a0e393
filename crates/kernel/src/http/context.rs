//! What is known about a request before anyone has looked at it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use tokio_util::sync::CancellationToken;

use super::envelope::REQUEST_ID;
use super::guard::Gate;
use super::routes::Documents;
use crate::change::AuditDraft;
use crate::identity::Principal;
use crate::telemetry::Trace;
use crate::{Ambient, Error, Json};

/// The longest request id that is taken over from a client.
const REQUEST_ID_CHARS_MAX: usize = 128;

/// The request that is being answered. An extractor too: `context: Arc<RequestContext>` is in the
/// request's extensions, [`Context`] takes it out.
#[derive(Debug)]
pub struct RequestContext {
    pub request_id: String,
    /// The address that the request came from; none if there was no connection.
    pub origin: Option<IpAddr>,
    pub method: Method,
    pub path: String,
    pub trace: Trace,
    /// Whether the caller sent a token, whatever came of it.
    pub token_sent: bool,
    /// The template of the route that took it, once one has.
    pub(super) route: OnceLock<Arc<str>>,
    /// Whoever it speaks for, once the guard knows.
    pub(super) caller: OnceLock<Arc<Principal>>,
    pub(super) server: Arc<Server>,
}

/// What handlers need to know of the server that runs them.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Cancelled when the server is to stop: waits and streams end at once.
    pub closing: CancellationToken,
    /// The OpenAPI document of all routes.
    pub document: Bytes,
    /// Of what domains answer by themselves.
    pub documents: Documents,
    pub gate: Gate,
    pub body_bytes_max: usize,
    /// How long nothing of a body may come.
    pub body_pause_max: Duration,
}

impl RequestContext {
    pub(super) fn of<B>(
        request: &axum::http::Request<B>,
        origin: Option<IpAddr>,
        trace: Trace,
        ambient: &Ambient,
        server: Arc<Server>,
    ) -> RequestContext {
        let headers = request.headers();
        RequestContext {
            request_id: request_id(headers).unwrap_or_else(|| ambient.id()),
            origin,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            trace,
            token_sent: super::guard::token(headers).is_some(),
            route: OnceLock::new(),
            caller: OnceLock::new(),
            server,
        }
    }

    /// A context without a server, for tests of error mappers.
    pub fn detached(request_id: &str, method: Method, path: &str) -> RequestContext {
        RequestContext {
            request_id: request_id.into(),
            origin: None,
            method,
            path: path.into(),
            trace: Trace { trace_id: [1; 16], span_id: [1; 8], flags: 0 },
            token_sent: false,
            route: OnceLock::new(),
            caller: OnceLock::new(),
            server: Arc::default(),
        }
    }

    /// Who did what from where, for the change that does it. Give it `before` and `after`.
    pub fn audit(&self, who: &Principal, action: &str, target: &str, org: &str) -> AuditDraft {
        AuditDraft {
            actor: who.subject.clone(),
            action: action.into(),
            target: target.into(),
            org: org.into(),
            origin: self.origin.map(|address| address.to_string()).unwrap_or_default(),
            outcome: "done".into(),
            request_id: self.request_id.clone(),
            before: Json::default(),
            after: Json::default(),
        }
    }

    /// Names the route that took it, for metrics and logs: its template, never the path. The
    /// first one counts.
    pub fn set_route(&self, template: Arc<str>) {
        let _ = self.route.set(template);
    }

    /// Whether a route took it.
    pub fn routed(&self) -> bool {
        self.route.get().is_some()
    }

    /// Ends when the server is told to stop.
    pub fn closing(&self) -> CancellationToken {
        self.server.closing.clone()
    }
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(&REQUEST_ID)?.to_str().ok()?;
    let fits = !id.is_empty()
        && id.len() <= REQUEST_ID_CHARS_MAX
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/=+".contains(&b));
    fits.then(|| id.to_owned())
}

fn context(parts: &Parts) -> Option<&Arc<RequestContext>> {
    parts.extensions.get()
}

fn caller(parts: &Parts) -> Option<Caller> {
    context(parts)?.caller.get().cloned().map(Caller)
}

/// Extracts the [`RequestContext`].
pub struct Context(pub Arc<RequestContext>);

impl<S: Sync> FromRequestParts<S> for Context {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Context, Error> {
        let missing = || Error::internal("the request has no context", "not behind http::router");
        context(parts).cloned().map(Context).ok_or_else(missing)
    }
}

/// Extracts whoever the request speaks for. Only on routes that are not public; on those, take
/// `Option<Caller>`.
pub struct Caller(pub Arc<Principal>);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Error> {
        let missing = || Error::internal("the route is public", "it has no caller");
        caller(parts).ok_or_else(missing)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Caller>, Infallible> {
        Ok(caller(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_kept_if_it_cannot_do_harm() {
        let with = |id: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", axum::http::HeaderValue::from_bytes(id).unwrap());
            request_id(&headers)
        };
        assert_eq!(with(b"abc-123_x.y:z").as_deref(), Some("abc-123_x.y:z"));
        assert_eq!(with(b""), None);
        assert_eq!(with(b"a b"), None);
        assert_eq!(with(b"<script>"), None);
        assert_eq!(with("é".as_bytes()), None);
        assert_eq!(with("x".repeat(129).as_bytes()), None);
    }
}
