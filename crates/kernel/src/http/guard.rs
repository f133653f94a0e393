//! In front of every route that is not public: who is calling, may they, and not too often.

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
use super::rate::Limiter;
use crate::identity::{Action, Principal, TokenProblem};
use crate::{App, Error, Result, Timestamp};

/// How often one principal may call, whichever way they come in.
#[derive(Debug, Default)]
pub(super) struct Gate {
    limiter: Option<Mutex<Limiter>>,
    hasher: std::hash::RandomState,
}

impl Gate {
    pub(super) fn new(config: &super::Config) -> Gate {
        let limiter = Limiter::new(config.rate_per_s, config.rate_burst).map(Mutex::new);
        Gate { limiter, hasher: std::hash::RandomState::new() }
    }

    fn limit(&self, principal: &Principal, now: Timestamp) -> Result<()> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        let who = self.hasher.hash_one((&principal.issuer, &principal.subject));
        let taken = limiter.lock().take(who, now);
        taken.map_err(|retry_after_s| Error::Busy { retry_after_s })
    }
}

/// Who sent the request, for a surface that does its own dispatch: counts it against their rate,
/// and they are the request's caller from then on. Waits only for a token that was not seen before.
pub async fn sign_in(
    app: &App,
    context: &RequestContext,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Arc<Principal>> {
    let token = bearer(method, headers)?;
    let principal = match app.identity.known(token) {
        Some(principal) => principal,
        None => Box::pin(app.identity.authenticate(token)).await?,
    };
    let_in(app, context, principal.clone())?;
    Ok(principal)
}

/// They are the request's caller, if they have not called too often.
fn let_in(app: &App, context: &RequestContext, principal: Arc<Principal>) -> Result<()> {
    context.server.gate.limit(&principal, app.ambient.now())?;
    let _ = context.caller.set(principal);
    Ok(())
}

/// Stands in front of one route.
#[derive(Clone)]
pub(super) struct Guard {
    pub app: App,
    pub action: Action,
    /// The route's template.
    pub route: Arc<str>,
}

impl Layer<Route> for Guard {
    type Service = Guarded;
    fn layer(&self, inner: Route) -> Guarded {
        Guarded { guard: self.clone(), inner }
    }
}

/// A route with its guard. Who was seen before is let in at once; only the first look at a token
/// waits for anything.
#[derive(Clone)]
pub(super) struct Guarded {
    guard: Guard,
    inner: Route,
}

type Answer = std::result::Result<Response, Infallible>;

impl Service<Request> for Guarded {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<RouteFuture<Infallible>, BoxFuture<'static, Answer>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.guard.recognise(&request) {
            Ok(None) => Either::Left(self.inner.call(request)),
            Ok(Some(stranger)) => {
                let Guarded { guard, mut inner } = self.clone();
                Either::Right(Box::pin(async move {
                    match guard.look_at(stranger).await {
                        Ok(()) => inner.call(request).await,
                        Err(error) => Ok(error.into_response()),
                    }
                }))
            }
            Err(error) => Either::Right(ready(Ok(error.into_response())).boxed()),
        }
    }
}

/// A caller whose token was not seen before.
struct Stranger {
    token: String,
    context: Arc<RequestContext>,
}

impl Guard {
    /// Lets the request in, if it is clear who sent it and that they may.
    fn recognise(&self, request: &Request) -> Result<Option<Stranger>> {
        let context = request.extensions().get::<Arc<RequestContext>>();
        let missing = || Error::internal("the request has no context", "not behind http::router");
        let context = context.ok_or_else(missing)?;
        // A request is routed once, so this is empty.
        context.set_route(self.route.clone());
        if self.action == Action::Public {
            return Ok(None);
        }
        let token = bearer(request.method(), request.headers())?;
        match self.app.identity.known(token) {
            Some(principal) => self.admit(principal, context).map(|()| None),
            None => Ok(Some(Stranger { token: token.into(), context: context.clone() })),
        }
    }

    async fn look_at(&self, Stranger { token, context }: Stranger) -> Result<()> {
        let principal = self.app.identity.authenticate(&token).await?;
        self.admit(principal, &context)
    }

    /// Lets the principal in, if they may do this and have not done too much of it.
    fn admit(&self, principal: Arc<Principal>, context: &RequestContext) -> Result<()> {
        if !self.action.allows(&principal) {
            let who = &principal.subject;
            return Err(Error::Forbidden(format!("{who} has no role that allows this")));
        }
        let_in(&self.app, context, principal)
    }
}

/// The token of a request, if it may be used for it.
fn bearer<'a>(method: &Method, headers: &'a HeaderMap) -> Result<&'a str> {
    let token = token(headers).ok_or_else(|| absent(headers))?;
    if token.from_cookie && forged(method, headers) {
        return Err(Error::Forbidden("a page of another site may not do this".into()));
    }
    std::str::from_utf8(token.text).map_err(|_| Error::Unauthenticated {
        problem: TokenProblem::Malformed,
        message: "the bearer token has characters that no token has".into(),
    })
}

fn absent(headers: &HeaderMap) -> Error {
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

/// The bearer token of a request: from `Authorization`, else from the cookie `cs_jwt`.
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

/// Browsers send cookies along whoever's page it is; they also say whose it is.
fn forged(method: &Method, headers: &HeaderMap) -> bool {
    let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let site = headers.get("sec-fetch-site").and_then(|v| v.to_str().ok());
    !safe && matches!(site, Some("cross-site" | "same-site"))
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
    fn why_there_is_no_token_is_told_apart() {
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
    fn a_foreign_page_cannot_write_with_a_cookie() {
        let forged = |method: Method, site: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("sec-fetch-site", site.parse().unwrap());
            forged(&method, &headers)
        };
        assert!(forged(Method::POST, "cross-site"));
        assert!(!forged(Method::POST, "same-origin"));
        assert!(!forged(Method::GET, "cross-site"));
    }
}
