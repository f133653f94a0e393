//! What the pipeline knows of a request, for handlers and error mappers.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Method, header};
use tokio_util::sync::CancellationToken;

use super::Config;
use super::auth::RateGate;
use super::mount::AnyMount;
use super::pipeline::REQUEST_ID;
use crate::change::AuditDraft;
use crate::identity::Principal;
use crate::telemetry::Trace;
use crate::{Ambient, Error, Json, Result};

/// The longest request id that is taken over from a client.
const REQUEST_ID_CHARS_MAX: usize = 128;

/// The request that is being handled. It is in the request's extensions, where [`Context`] finds it.
pub struct RequestContext {
    pub request_id: String,
    /// The address that the request came from; none if there was no connection.
    pub origin: Option<IpAddr>,
    pub method: Method,
    pub path: String,
    pub trace: Trace,
    /// Whether the caller sent a token, valid or not.
    pub token_sent: bool,
    /// The template of the route that matched, once one has.
    pub(super) route: OnceLock<Arc<str>>,
    /// The limit of the matched route, if it raises the server's.
    route_body_bytes_max: OnceLock<usize>,
    /// The caller, once authenticated.
    pub(super) caller: OnceLock<Arc<Principal>>,
    pub(super) server: Arc<Server>,
}

/// What handlers know of the server that runs them.
#[derive(Default)]
pub(super) struct Server {
    /// Cancelled when the server stops: waits and streams end at once.
    pub closing: CancellationToken,
    /// The OpenAPI document of all routes.
    pub document: Bytes,
    /// The APIs with documents of their own.
    pub mounts: Vec<Arc<dyn AnyMount>>,
    pub rate_gate: RateGate,
    pub config: Config,
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
            token_sent: super::auth::token(headers).is_some(),
            route: OnceLock::new(),
            route_body_bytes_max: OnceLock::new(),
            caller: OnceLock::new(),
            server,
        }
    }

    /// A context without a server.
    #[cfg(test)]
    pub fn detached(request_id: &str, method: Method, path: &str) -> RequestContext {
        RequestContext {
            request_id: request_id.into(),
            origin: None,
            method,
            path: path.into(),
            trace: Trace { trace_id: [1; 16], span_id: [1; 8], flags: 0 },
            token_sent: false,
            route: OnceLock::new(),
            route_body_bytes_max: OnceLock::new(),
            caller: OnceLock::new(),
            server: Arc::default(),
        }
    }

    /// Returns the audit entry for a change of this request; the handler adds `before` and `after`.
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

    /// Returns the caller. A public route has none.
    pub(super) fn caller(&self) -> Result<&Arc<Principal>> {
        let public = || Error::internal("the route is public", "it has no caller");
        self.caller.get().ok_or_else(public)
    }

    /// Names the route that matched, for metrics and logs: its template, never the path. Fails if
    /// the request announces a longer body than the route takes.
    pub(super) fn set_route(
        &self,
        template: Arc<str>,
        body_bytes_max: Option<usize>,
        headers: &HeaderMap,
    ) -> Result<()> {
        let _ = self.route.set(template);
        if let Some(bytes) = body_bytes_max {
            let _ = self.route_body_bytes_max.set(bytes);
        }
        let limit_bytes = self.body_bytes_max();
        let length = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
        match length.and_then(|length| length.parse::<u64>().ok()) {
            Some(length) if length > limit_bytes as u64 => Err(Error::TooLarge { limit_bytes }),
            _ => Ok(()),
        }
    }

    /// Returns the size of the longest body that the request may have.
    pub(super) fn body_bytes_max(&self) -> usize {
        let raised = self.route_body_bytes_max.get().copied().unwrap_or(0);
        self.server.config.body_bytes_max.max(raised)
    }

    /// Whether a route matched.
    pub fn routed(&self) -> bool {
        self.route.get().is_some()
    }

    /// Returns the token that is cancelled when the server stops.
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

/// Returns the context of a request.
pub(super) fn context(extensions: &Extensions) -> Result<&Arc<RequestContext>> {
    let missing = || Error::internal("the request has no context", "not behind http::router");
    extensions.get().ok_or_else(missing)
}

/// Extracts the [`RequestContext`].
pub struct Context(pub Arc<RequestContext>);

impl<S: Sync> FromRequestParts<S> for Context {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Context> {
        Ok(Context(context(&parts.extensions)?.clone()))
    }
}

/// Extracts the caller. On public routes take `Option<Caller>`.
pub struct Caller(pub Arc<Principal>);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller> {
        Ok(Caller(context(&parts.extensions)?.caller()?.clone()))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Caller>, Infallible> {
        let context = context(&parts.extensions).ok();
        Ok(context.and_then(|context| context.caller.get()).cloned().map(Caller))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_kept_if_it_is_harmless() {
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
