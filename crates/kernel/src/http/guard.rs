//! In front of every route that is not public: who is calling, may they, and not too often.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;

use super::rate::Limiter;
use crate::identity::{Action, Principal};
use crate::{App, Error, Result};

/// What all guards of a server share.
pub(super) struct Gate {
    app: App,
    limiter: Option<Mutex<Limiter>>,
    hasher: std::hash::RandomState,
}

impl Gate {
    pub(super) fn new(app: App, config: &super::Config) -> Gate {
        let limiter = Limiter::new(config.rate_per_s, config.rate_burst).map(Mutex::new);
        Gate { app, limiter, hasher: std::hash::RandomState::new() }
    }

    async fn admit(
        &self,
        action: Action,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Arc<Principal>> {
        let token = token(headers).ok_or_else(|| {
            Error::Unauthenticated("a bearer token is needed in the Authorization header".into())
        })?;
        if token.from_cookie && forged(method, headers) {
            return Err(Error::Forbidden("a page of another site may not do this".into()));
        }
        let principal = self.app.identity.authenticate(token.text).await?;
        if !action.allows(&principal) {
            let who = &principal.subject;
            return Err(Error::Forbidden(format!("{who} has no role that allows this")));
        }
        self.limit(&principal)?;
        Ok(principal)
    }

    fn limit(&self, principal: &Principal) -> Result<()> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        let who = self.hasher.hash_one((&principal.issuer, &principal.subject));
        let taken = limiter.lock().take(who, self.app.ambient.now());
        taken.map_err(|retry_after_s| Error::Busy { retry_after_s })
    }
}

pub(super) async fn guard(
    State((gate, action)): State<(Arc<Gate>, Action)>,
    mut request: Request,
    next: Next,
) -> Response {
    match gate.admit(action, request.method(), request.headers()).await {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

pub(super) struct Token<'a> {
    text: &'a str,
    from_cookie: bool,
}

/// The bearer token of a request: from `Authorization`, else from the cookie `cs_jwt`.
pub(super) fn token(headers: &HeaderMap) -> Option<Token<'_>> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, text) = value.to_str().ok()?.split_once(' ')?;
        let text = text.trim();
        let fits = scheme.eq_ignore_ascii_case("bearer") && !text.is_empty();
        return fits.then_some(Token { text, from_cookie: false });
    }
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|v| v.to_str().ok());
    let text = cookies
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix("cs_jwt="))?;
    (!text.is_empty()).then_some(Token { text, from_cookie: true })
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
        token(&headers).map(|token| (token.text.to_owned(), token.from_cookie))
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
