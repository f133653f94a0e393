//! Authenticates callers, authorises them for a route's action, and limits their request rate.

use std::convert::Infallible;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::Route;
use axum::routing::future::RouteFuture;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, ready};
use parking_lot::Mutex;
use tower::{Layer, Service};

use super::RequestContext;
use super::context::context;
use crate::identity::{Action, Principal, TokenProblem};
use crate::rate_limit::RateLimiter;
use crate::{App, Error, Result, Timestamp};

/// Limits how often one principal may call, over all routes together.
#[derive(Debug, Default)]
pub(super) struct RateGate {
    limiter: Option<Mutex<RateLimiter<u64>>>,
    hasher: std::hash::RandomState,
}

impl RateGate {
    pub(super) fn new(config: &super::Config) -> RateGate {
        let limiter = || RateLimiter::new(f64::from(config.rate_per_s), config.rate_burst);
        let limiter = (config.rate_per_s > 0).then(|| Mutex::new(limiter()));
        RateGate { limiter, hasher: std::hash::RandomState::new() }
    }

    fn limit(&self, principal: &Principal, now: Timestamp) -> Result<()> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        let who = self.hasher.hash_one((&principal.issuer, &principal.subject));
        let taken = limiter.lock().take(who, now);
        taken.map_err(|retry_after_s| Error::Busy { retry_after_s })
    }
}

/// The caller of a request, as far as it is known without waiting.
pub(super) enum Cached<'a> {
    Known(Arc<Principal>),
    /// A token that was not verified before.
    Unverified(&'a str),
}

/// Looks up the request's token among those that were verified before.
pub(super) fn authenticate_cached<'a>(
    app: &App,
    method: &Method,
    headers: &'a HeaderMap,
) -> Result<Cached<'a>> {
    let token = bearer(method, headers)?;
    Ok(match app.identity.known(token) {
        Some(principal) => Cached::Known(principal),
        None => Cached::Unverified(token),
    })
}

/// Counts the request against the principal's rate, and makes them its caller.
pub(super) fn admit(app: &App, context: &RequestContext, principal: Arc<Principal>) -> Result<()> {
    context.server.rate_gate.limit(&principal, app.ambient.now())?;
    let _ = context.caller.set(principal);
    Ok(())
}

/// Makes the error for a caller whose roles do not allow an action.
pub type DenyWith = fn(Action, &Principal) -> Error;

pub(super) fn forbidden(_: Action, who: &Principal) -> Error {
    Error::Forbidden(format!("{} has no role that allows this", who.subject))
}

/// The layer of each of axum's routes.
#[derive(Clone)]
pub(super) struct AuthLayer {
    pub app: App,
    pub action: Action,
    /// The route's template.
    pub route: Arc<str>,
    pub body_bytes_max: Option<usize>,
    pub deny_with: DenyWith,
}

impl Layer<Route> for AuthLayer {
    type Service = AuthService;
    fn layer(&self, inner: Route) -> AuthService {
        AuthService { auth: self.clone(), inner }
    }
}

/// A route that checks its callers. Only a token that was not verified before costs a future.
#[derive(Clone)]
pub(super) struct AuthService {
    auth: AuthLayer,
    inner: Route,
}

impl Service<Request> for AuthService {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<
        RouteFuture<Infallible>,
        BoxFuture<'static, std::result::Result<Response, Infallible>>,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.auth.authenticate_cached(&request) {
            Ok(None) => Either::Left(self.inner.call(request)),
            Ok(Some(caller)) => {
                let AuthService { auth, mut inner } = self.clone();
                Either::Right(Box::pin(async move {
                    match auth.authenticate(caller).await {
                        Ok(()) => inner.call(request).await,
                        Err(error) => Ok(error.into_response()),
                    }
                }))
            }
            Err(error) => Either::Right(ready(Ok(error.into_response())).boxed()),
        }
    }
}

/// A caller whose token was not verified before.
struct UnverifiedCaller {
    token: String,
    context: Arc<RequestContext>,
}

impl AuthLayer {
    /// Admits the request if the route is public or its token was verified before.
    fn authenticate_cached(&self, request: &Request) -> Result<Option<UnverifiedCaller>> {
        let context = context(request.extensions())?;
        context.set_route(self.route.clone(), self.body_bytes_max, request.headers())?;
        if self.action == Action::Public {
            return Ok(None);
        }
        match authenticate_cached(&self.app, request.method(), request.headers())? {
            Cached::Known(principal) => self.authorize(principal, context).map(|()| None),
            Cached::Unverified(token) => {
                Ok(Some(UnverifiedCaller { token: token.into(), context: context.clone() }))
            }
        }
    }

    async fn authenticate(
        &self,
        UnverifiedCaller { token, context }: UnverifiedCaller,
    ) -> Result<()> {
        let principal = self.app.identity.authenticate_from(&token, context.origin).await?;
        self.authorize(principal, &context)
    }

    fn authorize(&self, principal: Arc<Principal>, context: &RequestContext) -> Result<()> {
        if !self.action.allows(&principal) {
            return Err((self.deny_with)(self.action, &principal));
        }
        admit(&self.app, context, principal)
    }
}

/// Returns the request's token, unless a page of another site sent it.
fn bearer<'a>(method: &Method, headers: &'a HeaderMap) -> Result<&'a str> {
    let token = token(headers).ok_or_else(|| missing_token(headers))?;
    if token.from_cookie && is_cross_site(method, headers) {
        return Err(Error::Forbidden("a page of another site may not do this".into()));
    }
    std::str::from_utf8(token.text).map_err(|_| Error::Unauthenticated {
        problem: TokenProblem::Malformed,
        message: "the bearer token has characters that no token has".into(),
    })
}

fn missing_token(headers: &HeaderMap) -> Error {
    let problem = match headers.get(header::AUTHORIZATION) {
        None => TokenProblem::Missing,
        Some(value) if is_bearer(value.as_bytes()) => TokenProblem::Malformed,
        Some(_) => TokenProblem::OtherScheme,
    };
    let message = "a bearer token is needed in the Authorization header".into();
    Error::Unauthenticated { problem, message }
}

fn is_bearer(authorization: &[u8]) -> bool {
    let scheme = authorization.split(|byte| *byte == b' ').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"bearer")
}

pub(super) struct Token<'a> {
    text: &'a [u8],
    from_cookie: bool,
}

/// Returns the bearer token of a request: from `Authorization`, else from the cookie `cs_jwt`.
pub(super) fn token(headers: &HeaderMap) -> Option<Token<'_>> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, text) = value.as_bytes().split_at_checked("bearer ".len())?;
        let text = text.trim_ascii();
        let fits = scheme.eq_ignore_ascii_case(b"bearer ") && !text.is_empty();
        return fits.then_some(Token { text, from_cookie: false });
    }
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|v| v.to_str().ok());
    let text = cookies
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix("cs_jwt="))?;
    (!text.is_empty()).then_some(Token { text: text.as_bytes(), from_cookie: true })
}

/// Whether a page of another site may have sent the request. Browsers attach cookies to such requests,
/// too. A request that does not say where it comes from counts as one.
fn is_cross_site(method: &Method, headers: &HeaderMap) -> bool {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("sec-fetch-site") {
        Some(site) => !matches!(site, "same-origin" | "none"),
        // Older browsers say only the origin of the page, and for these methods always.
        None => match (text("origin"), text("host")) {
            (Some(origin), Some(host)) => {
                let of = |scheme| origin.strip_prefix(scheme) == Some(host);
                !of("https://") && !of("http://")
            }
            _ => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &'static str, value: &str) -> Option<(String, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        let text = |token: &Token<'_>| String::from_utf8(token.text.into()).unwrap();
        token(&headers).map(|token| (text(&token), token.from_cookie))
    }

    #[test]
    fn a_token_is_found_in_the_header_or_in_the_cookie() {
        assert_eq!(found("authorization", "Bearer abc"), Some(("abc".into(), false)));
        assert_eq!(found("authorization", "bearer  abc "), Some(("abc".into(), false)));
        assert_eq!(found("cookie", "a=b; cs_jwt=abc; c=d"), Some(("abc".into(), true)));
        for bad in ["Basic abc", "Bearer", "Bearer ", "abc"] {
            assert_eq!(found("authorization", bad), None, "{bad}");
        }
        assert_eq!(found("cookie", "xcs_jwt=abc; cs_jwt="), None);
    }

    #[test]
    fn the_reasons_for_a_missing_token_are_distinguished() {
        let problem = |value: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert("authorization", value.parse().unwrap());
            }
            match bearer(&Method::GET, &headers) {
                Err(Error::Unauthenticated { problem, .. }) => problem,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(problem(None), TokenProblem::Missing);
        for other in ["Basic abc", "abc", "Bearerx y", ""] {
            assert_eq!(problem(Some(other)), TokenProblem::OtherScheme, "{other}");
        }
        for empty in ["Bearer", "bearer "] {
            assert_eq!(problem(Some(empty)), TokenProblem::Malformed, "{empty}");
        }
    }

    #[test]
    fn a_page_of_another_site_cannot_write_with_a_cookie() {
        let refused = |method: Method, given: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "mainstay.example:8443".parse().unwrap());
            headers.insert("cookie", "cs_jwt=abc".parse().unwrap());
            for (name, value) in given {
                headers.insert(*name, value.parse().unwrap());
            }
            matches!(bearer(&method, &headers), Err(Error::Forbidden(_)))
        };
        let ours = ("origin", "https://mainstay.example:8443");
        let site = |site: &'static str| ("sec-fetch-site", site);
        for (given, expected) in [
            (vec![site("same-origin")], false),
            (vec![site("none")], false),
            (vec![site("cross-site"), ours], true),
            (vec![site("same-site")], true),
            (vec![site("anything")], true),
            (vec![], true),
            (vec![ours], false),
            (vec![("origin", "https://mainstay.example")], true),
            (vec![("origin", "https://evil.example")], true),
            (vec![("origin", "null")], true),
        ] {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert_eq!(refused(method, &given), expected, "{given:?}");
            }
            assert!(!refused(Method::GET, &given), "{given:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer abc".parse().unwrap());
        assert!(bearer(&Method::POST, &headers).is_ok(), "a header is never sent by itself");
    }
}
