//! Authorization code with PKCE, from the link to the ID token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;

const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CALLBACK: &str = "http://127.0.0.1:4321/callback";

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

/// What a client's link asks for, with some of it replaced; an empty value leaves a field out.
fn request(with: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("response_type", "code".to_owned()),
        ("client_id", CLI_CLIENT.to_owned()),
        ("redirect_uri", CALLBACK.to_owned()),
        ("scope", "openid profile".to_owned()),
        ("state", "s t&te".to_owned()),
        ("nonce", "n0nce".to_owned()),
        ("code_challenge", challenge()),
        ("code_challenge_method", "S256".to_owned()),
    ];
    for (name, value) in with {
        fields.retain(|(field, _)| field != name);
        fields.push((name, (*value).to_owned()));
    }
    fields
}

fn borrowed<'a>(fields: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    fields.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

impl Server {
    async fn page(&self, with: &[(&'static str, &str)]) -> (StatusCode, HeaderMap, String) {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(borrowed(&request(with)))
            .finish();
        let uri = format!("/oauth/authorize?{query}");
        self.send(Request::builder().uri(uri).body(Body::empty()).unwrap()).await
    }

    /// The pairs that the browser brings back.
    async fn approve(&self, with: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let token = self.alice(Kind::Access);
        let mut fields = request(with);
        fields.extend([("token", token), ("decision", "approve".to_owned())]);
        let (status, headers, body) =
            self.post_with("/oauth/authorize", &borrowed(&fields), &[]).await;
        assert_eq!(status, 303, "{body}");
        assert_eq!(headers["cache-control"], "no-store");
        let location = headers["location"].to_str().unwrap();
        assert!(location.starts_with(&format!("{CALLBACK}?")), "{location}");
        url::Url::parse(location).unwrap().query_pairs().into_owned().collect()
    }

    async fn redeem(&self, code: &str, with: &[(&'static str, &str)]) -> (u16, Value) {
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", CALLBACK),
            ("client_id", CLI_CLIENT),
            ("code_verifier", VERIFIER),
        ];
        for (name, value) in with {
            fields.retain(|(field, _)| field != name);
            fields.push((name, value));
        }
        self.post("/oauth/token", &fields).await
    }
}

fn value<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    pairs.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

#[tokio::test]
async fn a_code_brings_tokens_and_a_signed_id_token_for_who_approved() {
    let server = Server::start();
    let document = server.get("/.well-known/openid-configuration").await;
    assert_eq!(document["authorization_endpoint"], format!("{URL}/oauth/authorize"));
    assert_eq!(document["response_types_supported"], json!(["code"]));
    assert_eq!(document["code_challenge_methods_supported"], json!(["S256"]));
    let (status, headers, page) = server.page(&[]).await;
    assert_eq!(status, 200);
    assert!(page.contains(CLI_CLIENT) && page.contains("http://127.0.0.1:4321"), "{page}");
    assert!(page.contains(r#"value="s t&amp;te""#), "{page}");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("form-action 'self' http://127.0.0.1:4321;"), "{policy}");

    let back = server.approve(&[]).await;
    assert_eq!((value(&back, "state"), value(&back, "iss")), ("s t&te", URL));
    let (status, tokens) = server.redeem(value(&back, "code"), &[]).await;
    assert_eq!(status, 200, "{tokens}");
    assert_eq!(server.who(&tokens).await.subject, "alice");

    let keys: jsonwebtoken::jwk::JwkSet =
        serde_json::from_value(server.get("/oauth/jwks").await).unwrap();
    let id_token = tokens["id_token"].as_str().unwrap();
    let kid = jsonwebtoken::decode_header(id_token).unwrap().kid.unwrap();
    let key = jsonwebtoken::DecodingKey::from_jwk(keys.find(&kid).unwrap()).unwrap();
    let mut rules = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::ES256);
    rules.set_audience(&[CLI_CLIENT]);
    rules.set_issuer(&[URL]);
    // The clock of the test is not this machine's.
    rules.validate_exp = false;
    let claims = jsonwebtoken::decode::<Value>(id_token, &key, &rules).unwrap().claims;
    let now = server.app.ambient.now().seconds();
    assert_eq!((&claims["nonce"], &claims["sub"]), (&json!("n0nce"), &json!("alice")));
    assert_eq!((&claims["iat"], &claims["exp"]), (&json!(now), &json!(now + 3600)));
    let hash = Sha256::digest(tokens["access_token"].as_str().unwrap());
    assert_eq!(claims["at_hash"], URL_SAFE_NO_PAD.encode(&hash[..16]));
    let why = server.app.identity.authenticate(id_token).await.unwrap_err().to_string();
    assert!(why.contains("ID token"), "{why}");

    let plain = server.approve(&[("scope", "")]).await;
    let (_, tokens) = server.redeem(value(&plain, "code"), &[]).await;
    assert!(tokens.get("id_token").is_none(), "only for `openid`");
}

#[tokio::test]
async fn a_code_is_good_once_for_its_client_with_its_verifier_and_not_for_long() {
    let server = Server::start();
    let back = server.approve(&[]).await;
    let code = value(&back, "code");
    let other = format!("{VERIFIER}x");
    for with in [
        ("code_verifier", other.as_str()),
        ("redirect_uri", "http://127.0.0.1:1/callback"),
        ("client_id", "other"),
        ("code", "x.y"),
        ("code", "x"),
    ] {
        let (status, body) = server.redeem(code, &[with]).await;
        assert_eq!((status, &body["error"]), (400, &json!("invalid_grant")), "{with:?}");
    }
    let (_, body) = server.redeem(code, &[("code_verifier", "")]).await;
    assert_eq!(body["error"], "invalid_request", "PKCE is not optional");
    let (status, tokens) = server.redeem(code, &[]).await;
    assert_eq!(status, 200, "none of these used it up: {tokens}");
    let refresh = tokens["refresh_token"].as_str().unwrap();
    assert_eq!(server.redeem(code, &[]).await.1["error"], "invalid_grant");
    let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
    assert_eq!(server.token_error(&fields).await.1, "invalid_grant", "a copied code ends both");

    let late = server.approve(&[]).await;
    server.pass_s(60);
    assert_eq!(server.redeem(value(&late, "code"), &[]).await.1["error"], "invalid_grant");
}

#[tokio::test]
async fn nothing_is_sent_to_an_address_that_is_not_registered() {
    let server = Server::start();
    for with in [
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://localhost:1/callback"),
        ("redirect_uri", ""),
        ("client_id", "nobody"),
        ("client_id", ""),
    ] {
        let (status, headers, body) = server.page(&[with]).await;
        assert_eq!(status, 400, "{with:?}: {body}");
        assert!(!headers.contains_key("location"), "{with:?}");
    }
    for (with, error) in [
        (("response_type", "token"), "unsupported_response_type"),
        (("response_type", ""), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge_method", ""), "invalid_request"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge", "c2hvcnQ"), "invalid_request"),
    ] {
        let (status, headers, _) = server.page(&[with]).await;
        let location = headers.get("location").and_then(|v| v.to_str().ok()).unwrap_or_default();
        assert_eq!(status, 303, "{with:?}");
        assert!(location.starts_with(CALLBACK), "{location}");
        assert!(location.contains(&format!("error={error}")), "{location}");
        assert!(location.contains("state=s+t%26te"), "{location}");
    }
}

#[tokio::test]
async fn a_person_can_say_no_and_a_bad_token_stays_on_the_page() {
    let server = Server::start();
    let mut fields = request(&[]);
    fields.extend([("token", "nonsense".to_owned()), ("decision", "approve".to_owned())]);
    let (status, headers, _) = server.post_with("/oauth/authorize", &borrowed(&fields), &[]).await;
    assert_eq!((status.as_u16(), headers.get("location")), (401, None));
    let mut fields = request(&[]);
    fields.push(("decision", "deny".to_owned()));
    let (status, headers, _) = server.post_with("/oauth/authorize", &borrowed(&fields), &[]).await;
    assert_eq!(status, 303);
    assert!(headers["location"].to_str().unwrap().contains("error=access_denied"));
}

#[tokio::test]
async fn a_registered_client_without_a_secret_uses_its_own_address() {
    let uri = "https://console.example/signed-in";
    let console =
        Client { id: "console".into(), redirect_uris: vec![uri.into()], ..Client::default() };
    let server = Server::with(Config { clients: vec![console], ..Config::default() }, 1);
    let token = server.alice(Kind::Access);
    let mut fields = request(&[("client_id", "console"), ("redirect_uri", uri)]);
    fields.push(("token", token));
    let (status, headers, _) = server.post_with("/oauth/authorize", &borrowed(&fields), &[]).await;
    assert_eq!(status, 303);
    let location = url::Url::parse(headers["location"].to_str().unwrap()).unwrap();
    assert!(location.as_str().starts_with(&format!("{uri}?")));
    let back: Vec<(String, String)> = location.query_pairs().into_owned().collect();
    let own = [("client_id", "console"), ("redirect_uri", uri)];
    let (status, tokens) = server.redeem(value(&back, "code"), &own).await;
    assert_eq!(status, 200, "{tokens}");
    let secretless =
        [("grant_type", "client_credentials"), ("client_id", "console"), ("client_secret", "")];
    assert_eq!(server.token_error(&secretless).await.1, "invalid_client");
}
