//! The authorization endpoint: the page where a person lets a program act for them. As on the
//! device page, the person signs in with a pasted token, so no other site can act for them.

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, LOCATION, REFERRER_POLICY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use url::Url;

use super::code::{AuthorizationRequest, Refused, redirect};
use super::oauth::{Form, OAuthError};
use super::routes::{RequestOrigin, builtin, origin, person};
use super::{Builtin, page};
use crate::App;

const FIELDS: [&str; 8] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
];

/// The page to let a program act for oneself on
///
/// Authorization code with PKCE: `response_type=code`, `client_id`, `redirect_uri`, `scope`, `state`,
/// `nonce`, `code_challenge` and `code_challenge_method=S256`.
#[utoipa::path(get, path = "/oauth/authorize", tag = "oauth",
    responses((status = 200, description = "A page", content_type = "text/html"),
        (status = 303, description = "RFC 6749, section 4.1.2.1")))]
pub async fn authorize_page(
    State(app): State<App>,
    RawQuery(query): RawQuery,
) -> Result<Response, OAuthError> {
    let builtin = builtin(&app)?;
    let form = Form::parse(query.unwrap_or_default().as_bytes())?;
    let request = match AuthorizationRequest::read(&form, &builtin.clients) {
        Ok(request) => request,
        Err(refused) => return Ok(refuse(builtin, refused)),
    };
    let fields: Vec<(&str, &str)> =
        FIELDS.iter().filter_map(|name| Some((*name, form.get(name)?))).collect();
    let origin = Url::parse(&request.redirect_uri).map(|url| url.origin().ascii_serialization());
    Ok(page::authorize(&request.client, &fields, &origin.unwrap_or_default()))
}

/// Let a program act for oneself, or not
#[utoipa::path(post, path = "/oauth/authorize", tag = "oauth",
    request_body(content = Object, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303, description = "RFC 6749, section 4.1.2")))]
pub async fn authorize(
    State(app): State<App>,
    context: RequestOrigin,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, OAuthError> {
    let builtin = builtin(&app)?;
    let form = Form::read(&headers, &body)?;
    let request = match AuthorizationRequest::read(&form, &builtin.clients) {
        Ok(request) => request,
        Err(refused) => return Ok(refuse(builtin, refused)),
    };
    let to_client = |error| Refused::ToClient {
        redirect_uri: request.redirect_uri.clone(),
        state: request.state.clone(),
        error,
    };
    if form.get("decision") == Some("deny") {
        let error = OAuthError::new("access_denied", "the person said no");
        return Ok(refuse(builtin, to_client(error)));
    }
    let origin = origin(context);
    // A mistyped token is for the person to correct, not for the program.
    let who = match person(&app, &headers, &form, origin).await {
        Ok(who) => who,
        Err(error) => return Ok(page::message(error.status, &error.why)),
    };
    let (uri, state) = (request.redirect_uri.clone(), request.state.clone());
    let code = builtin.issue_code(app.store.as_ref(), request, &who).await?;
    Ok(send_back(builtin, &uri, state.as_deref(), &[("code", &code)]))
}

fn refuse(builtin: &Builtin, refused: Refused) -> Response {
    match refused {
        Refused::ToPerson(error) => page::message(error.status, &error.why),
        Refused::ToClient { redirect_uri, state, error } => {
            let pairs = [("error", error.code), ("error_description", error.why.as_str())];
            send_back(builtin, &redirect_uri, state.as_deref(), &pairs)
        }
    }
}

/// To the program's address, which was checked. `iss` is RFC 9207's.
fn send_back(
    builtin: &Builtin,
    uri: &str,
    state: Option<&str>,
    pairs: &[(&str, &str)],
) -> Response {
    let mut pairs = pairs.to_vec();
    pairs.extend(state.map(|state| ("state", state)));
    pairs.push(("iss", builtin.signer().issuer()));
    match redirect(uri, &pairs) {
        Some(location) => {
            let headers = [
                (LOCATION, location.as_str()),
                (CACHE_CONTROL, "no-store"),
                (REFERRER_POLICY, "no-referrer"),
            ];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        None => page::message(StatusCode::BAD_REQUEST, "`redirect_uri` is not a URL"),
    }
}
