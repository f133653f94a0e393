//! The built-in issuer's endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use super::grants::{GRANTS, Tokens};
use super::oauth::{ClientCredentials, Form, OAuthError, private};
use super::{Builtin, CLI_CLIENT, POLL_S, account, authorize, device, page};
use crate::http::{RequestContext, Routes};
use crate::identity::attempts::network;
use crate::identity::jwk::Jwk;
use crate::identity::token::{self, Unverified};
use crate::identity::{Action, Principal};
use crate::{App, Error};

/// The path prefix for clients that expect a Keycloak.
const REALM: &str = "/auth/realms/mainstay";

pub fn routes() -> Routes {
    table().into_iter().fold(account::routes(), |all, one| all.route(Action::Public, one))
}

pub fn table() -> Vec<UtoipaMethodRouter<App>> {
    vec![
        routes!(discovery),
        routes!(realm_discovery),
        routes!(keys),
        routes!(token),
        routes!(realm_token),
        routes!(realm_logout),
        routes!(revoke),
        routes!(authorize::authorize_page, authorize::authorize),
        routes!(device_authorization),
        routes!(device_page, device_decision),
    ]
}

pub fn builtin(app: &App) -> Result<&Builtin, OAuthError> {
    let why = "this server issues no tokens; get one from an issuer that it trusts";
    let none = || OAuthError::new("invalid_request", why).with_status(StatusCode::NOT_FOUND);
    app.identity.builtin().ok_or_else(none)
}

/// OpenID Connect discovery
#[utoipa::path(get, path = "/.well-known/openid-configuration", tag = "oauth",
    responses((status = 200, description = "What this issuer can do", body = Object)))]
async fn discovery(State(app): State<App>) -> Result<Json<Value>, OAuthError> {
    let base = builtin(&app)?.signer().issuer();
    let mut document = discovery_document(base, base, "/oauth/token");
    document["authorization_endpoint"] = format!("{base}/oauth/authorize").into();
    document["response_types_supported"] = json!(["code"]);
    document["response_modes_supported"] = json!(["query"]);
    document["code_challenge_methods_supported"] = json!(["S256"]);
    document["authorization_response_iss_parameter_supported"] = true.into();
    Ok(Json(document))
}

/// OpenID Connect discovery, where Keycloak has it
#[utoipa::path(get, path = "/auth/realms/mainstay/.well-known/openid-configuration", tag = "oauth",
    responses((status = 200, description = "What this issuer can do", body = Object)))]
async fn realm_discovery(State(app): State<App>) -> Result<Json<Value>, OAuthError> {
    let base = builtin(&app)?.signer().issuer();
    let token = format!("{REALM}/protocol/openid-connect/token");
    Ok(Json(discovery_document(&format!("{base}{REALM}"), base, &token)))
}

fn discovery_document(issuer: &str, base: &str, token_path: &str) -> Value {
    json!({
        "issuer": issuer,
        "token_endpoint": format!("{base}{token_path}"),
        "device_authorization_endpoint": format!("{base}/oauth/device_authorization"),
        "jwks_uri": format!("{base}/oauth/jwks"),
        "revocation_endpoint": format!("{base}/oauth/revoke"),
        "grant_types_supported": GRANTS,
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "subject_types_supported": ["public"],
        "response_types_supported": [],
        "scopes_supported": ["openid", "offline_access"],
    })
}

/// The keys that tokens are signed with
#[utoipa::path(get, path = "/oauth/jwks", tag = "oauth",
    responses((status = 200, description = "A JWK set", body = Object)))]
async fn keys(State(app): State<App>) -> Result<Json<Value>, OAuthError> {
    let public: &Jwk = builtin(&app)?.signer().public_key();
    Ok(Json(json!({ "keys": [public] })))
}

/// Trade credentials, a code, a refresh token or a device code for an access token
#[utoipa::path(post, path = "/oauth/token", tag = "oauth",
    request_body(content = Object, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Tokens), (status = 400, description = "RFC 6749, section 5.2")))]
async fn token(
    State(app): State<App>,
    context: RequestOrigin,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, OAuthError> {
    let builtin = builtin(&app)?;
    let form = Form::read(&headers, &body)?;
    let (attempts, origin) = (&app.identity.attempts, origin(context));
    attempts.begin(origin, app.ambient.now())?;
    let granted = builtin.grant(app.store.as_ref(), &headers, &form).await;
    let failed = |error: &OAuthError| ["invalid_client", "invalid_grant"].contains(&error.code);
    if !granted.as_ref().is_err_and(failed) {
        attempts.forgive(origin);
    }
    Ok(private(StatusCode::OK, &granted?))
}

/// As /oauth/token, where Keycloak has it
#[utoipa::path(post, path = "/auth/realms/mainstay/protocol/openid-connect/token", tag = "oauth",
    request_body(content = Object, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Tokens), (status = 400, description = "RFC 6749, section 5.2")))]
async fn realm_token(
    app: State<App>,
    context: RequestOrigin,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, OAuthError> {
    token(app, context, headers, body).await
}

/// Sign out, where Keycloak has it: ends the session of the refresh token
#[utoipa::path(post, path = "/auth/realms/mainstay/protocol/openid-connect/logout", tag = "oauth",
    request_body(content = Object, content_type = "application/x-www-form-urlencoded"),
    responses((status = 204), (status = 400, description = "RFC 6749, section 5.2")))]
async fn realm_logout(
    State(app): State<App>,
    context: RequestOrigin,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, OAuthError> {
    let builtin = builtin(&app)?;
    let form = Form::read(&headers, &body)?;
    let token = form.need("refresh_token")?;
    let (attempts, origin) = (&app.identity.attempts, origin(context));
    attempts.begin(origin, app.ambient.now())?;
    let session = builtin.presented(token).await?;
    attempts.forgive(origin);
    builtin.end_session(app.store.as_ref(), session, "logout").await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Revoke a refresh token (RFC 7009): ends its session
///
/// Access tokens cannot be revoked; they expire.
#[utoipa::path(post, path = "/oauth/revoke", tag = "oauth",
    request_body(content = Object, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "The token is not good any more, or never was"),
        (status = 400, description = "RFC 7009, section 2.2.1")))]
async fn revoke(
    State(app): State<App>,
    context: RequestOrigin,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, OAuthError> {
    let builtin = builtin(&app)?;
    let form = Form::read(&headers, &body)?;
    let token = form.need("token")?;
    let (attempts, origin) = (&app.identity.attempts, origin(context));
    attempts.begin(origin, app.ambient.now())?;
    if app.identity.authenticate(token).await.is_ok() {
        let why = "an access token cannot be revoked; revoke the refresh token";
        return Err(OAuthError::new("unsupported_token_type", why));
    }
    // A token that is not ours is not good here: RFC 7009 wants no error for it.
    if let Ok(session) = builtin.presented(token).await {
        attempts.forgive(origin);
        builtin.end_session(app.store.as_ref(), session, "logout").await?;
    }
    Ok(private(StatusCode::OK, &json!({})))
}

/// The request's context; none in tests without a server.
pub type RequestOrigin = Option<Extension<Arc<RequestContext>>>;

pub fn origin(context: RequestOrigin) -> Option<IpAddr> {
    context.and_then(|context| context.origin)
}

#[derive(Serialize, ToSchema)]
struct DeviceAuthorization {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: String,
    expires_in: u64,
    interval: i64,
}

/// Begin to sign in on a device without a browser
#[utoipa::path(post, path = "/oauth/device_authorization", tag = "oauth",
    request_body(content = Object, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = DeviceAuthorization), (status = 400, description = "RFC 8628")))]
async fn device_authorization(
    State(app): State<App>,
    context: RequestOrigin,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, OAuthError> {
    let builtin = builtin(&app)?;
    let form = Form::read(&headers, &body)?;
    let client = ClientCredentials::read(&headers, &form)?
        .ok_or_else(|| OAuthError::new("invalid_request", "`client_id` is missing"))?;
    if client.id != CLI_CLIENT {
        builtin.clients.sign_in(&client)?;
    }
    let (now, origin) = (app.ambient.now(), origin(context).map(network));
    let each = |origin: String| builtin.device_starts_each.allow(&origin, now);
    if !origin.is_none_or(each) || !builtin.device_starts.allow("", now) {
        let why = "too many devices sign in at once; try again in a minute";
        let error = OAuthError::new("temporarily_unavailable", why);
        return Err(error.with_status(StatusCode::TOO_MANY_REQUESTS));
    }
    let started =
        device::start(app.store.as_ref(), &app.ambient, &client.id, builtin.device_code).await?;
    let verification_uri = format!("{}/oauth/device", builtin.signer().issuer());
    let answer = DeviceAuthorization {
        verification_uri_complete: format!("{verification_uri}?user_code={}", started.user_code),
        device_code: started.device_code,
        user_code: started.user_code,
        verification_uri,
        expires_in: builtin.device_code.as_secs(),
        interval: POLL_S,
    };
    Ok(private(StatusCode::OK, &answer))
}

#[derive(Deserialize, IntoParams)]
struct DeviceQuery {
    user_code: Option<String>,
}

/// The page to approve a device on
#[utoipa::path(get, path = "/oauth/device", tag = "oauth", params(DeviceQuery),
    responses((status = 200, description = "A page", content_type = "text/html")))]
async fn device_page(
    State(app): State<App>,
    Query(query): Query<DeviceQuery>,
) -> Result<Response, OAuthError> {
    builtin(&app)?;
    Ok(page::form(query.user_code.as_deref()))
}

/// Approve or deny a device
///
/// Send `user_code` and `decision` (`approve` or `deny`), and an access token as the bearer token
/// or in the field `token`: the device will act for whom it speaks for.
#[utoipa::path(post, path = "/oauth/device", tag = "oauth",
    request_body(content = Object, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "It was decided"), (status = 400, description = "RFC 6749, section 5.2")))]
async fn device_decision(
    State(app): State<App>,
    context: RequestOrigin,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let decided = decide(&app, &headers, &body, origin(context)).await;
    match (decided, page::is_wanted(&headers)) {
        (Ok((said, _)), true) => page::message(StatusCode::OK, &said),
        (Ok((_, body)), false) => private(StatusCode::OK, &body),
        (Err(refused), true) => page::message(refused.status, &refused.why),
        (Err(refused), false) => refused.into_response(),
    }
}

/// The person whose access token came with the form, as a bearer token or in the field `token`. Their
/// account is brought up to date.
pub async fn person(
    app: &App,
    headers: &HeaderMap,
    form: &Form,
    address: Option<IpAddr>,
) -> Result<Arc<Principal>, OAuthError> {
    let builtin = builtin(app)?;
    let in_header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let in_header = in_header.and_then(|text| text.split_once(' ')).map(|(_, token)| token.trim());
    let bearer = match in_header {
        Some(token) => token,
        None => form.need("token")?,
    };
    let who =
        app.identity.authenticate_from(bearer, address).await.map_err(|error| match error {
            Error::Unauthenticated { message, .. } => {
                OAuthError::new("invalid_token", message).with_status(StatusCode::UNAUTHORIZED)
            }
            other => other.into(),
        })?;
    if who.agent_of.is_some() || !who.client.is_empty() {
        let why = "a program cannot sign in for others; it gets its tokens with its own secret";
        return Err(OAuthError::new("access_denied", why));
    }
    let issued_at = Unverified::parse(bearer).map(|token| token::issued_at(&token.claims))?;
    let ours = builtin.signer().issuer();
    account::sign_in(app.store.as_ref(), &app.ambient, ours, &who, issued_at).await?;
    Ok(who)
}

async fn decide(
    app: &App,
    headers: &HeaderMap,
    body: &Bytes,
    address: Option<IpAddr>,
) -> Result<(String, Value), OAuthError> {
    let builtin = builtin(app)?;
    let form = Form::read(headers, body)?;
    let who = person(app, headers, &form, address).await?;
    let (name, now) = (format!("{} {}", who.issuer, who.subject), app.ambient.now());
    if !builtin.device_decisions.allow(&name, now) {
        let error = OAuthError::new("slow_down", "too many codes tried; wait a minute");
        return Err(error.with_status(StatusCode::TOO_MANY_REQUESTS));
    }
    let approve = match form.get("decision").unwrap_or("approve") {
        "approve" => true,
        "deny" => false,
        _ => return Err(OAuthError::new("invalid_request", "`decision` must be approve or deny")),
    };
    let code = device::read_user_code(form.need("user_code")?).ok_or_else(|| {
        OAuthError::new("invalid_request", "`user_code` must be eight letters, such as BCDF-GHJK")
    })?;
    let client = device::decide(app.store.as_ref(), now, &code, &who, approve).await?;
    let said = if approve {
        format!("Approved: {client} now acts for {}. You can close this page.", who.subject)
    } else {
        format!("Denied: {client} gets nothing. You can close this page.")
    };
    Ok((said, json!({"approved": approve, "client": client, "subject": who.subject})))
}
