//! Programs that sign in at our own issuer.

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::http;
use kernel::identity::routes;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::stage::{Answer, Stage};

/// A token for a client with this secret, if it gets one.
pub async fn token(stage: &Stage, client: &str, secret: &str) -> Option<String> {
    let config = http::Config { rate_per_s: 0, ..http::Config::default() };
    let router = http::router(stage.app.clone(), routes(), &config).unwrap();
    let form = format!("grant_type=client_credentials&client_id={client}&client_secret={secret}");
    let request = Request::post("/oauth/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .unwrap();
    let answer = Answer::read(router.oneshot(request).await.unwrap()).await;
    let token = answer.body["access_token"].as_str().map(str::to_owned);
    assert_eq!(answer.status == 200, token.is_some(), "{}", answer.text);
    token
}

/// What a token says.
pub fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}
