//! The client-credentials and refresh-token grants, and the documents that lead to them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::*;

#[tokio::test]
async fn the_discovery_document_leads_to_the_key_that_tokens_are_signed_with() {
    let server = Server::start();
    let document = server.get("/.well-known/openid-configuration").await;
    assert_eq!(document["issuer"], URL);
    assert_eq!(document["token_endpoint"], format!("{URL}/oauth/token"));
    assert_eq!(document["jwks_uri"], format!("{URL}/oauth/jwks"));
    let keys = server.get("/oauth/jwks").await;
    let header = server.alice(Kind::Access);
    let header = header.split('.').next().unwrap();
    let header = URL_SAFE_NO_PAD.decode(header).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(keys["keys"][0]["kid"], header["kid"]);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1);
    assert!(keys["keys"][0].get("d").is_none(), "the private half stays here");
    let realm = server.get("/auth/realms/mainstay/.well-known/openid-configuration").await;
    assert_eq!(realm["issuer"], format!("{URL}/auth/realms/mainstay"));
}

#[tokio::test]
async fn a_client_signs_in_by_basic_or_post_and_is_who_the_configuration_says() {
    let server = Server::start();
    let grant = ("grant_type", "client_credentials");
    let (status, tokens) = server
        .post("/oauth/token", &[grant, ("client_id", "ci"), ("client_secret", "s3cret")])
        .await;
    assert_eq!((status, &tokens["token_type"]), (200, &json!("Bearer")));
    assert!(tokens.get("refresh_token").is_none());
    let who = server.who(&tokens).await;
    assert_eq!((who.subject.as_str(), who.org.as_str()), ("ci", "acme"));
    assert!(crate::identity::Action::AdminRead.allows(&who));

    let basic = STANDARD.encode("agent:s3cret");
    let headers = [("authorization", format!("Basic {basic}"))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let (status, _, body) = server.post_with("/oauth/token", &[grant], &headers).await;
    assert_eq!(status, 200);
    let who = server.who(&serde_json::from_str(&body).unwrap()).await;
    assert_eq!(who.agent_of.as_deref(), Some("c1"));

    let (status, headers, _) = server
        .post_with("/oauth/token", &[grant, ("client_id", "ci"), ("client_secret", "x")], &[])
        .await;
    assert_eq!(status, 401);
    assert!(headers.contains_key("www-authenticate"));
    assert_eq!(server.token_error(&[grant]).await, (401, "invalid_client".into()));
    let public = [grant, ("client_id", CLI_CLIENT)];
    assert_eq!(server.token_error(&public).await, (401, "invalid_client".into()));
}

/// One client, and a store that may be away.
struct Kept;

#[async_trait::async_trait]
impl ClientSource for Kept {
    async fn client(&self, id: &str, secret: &str) -> Result<Option<ClientGrant>> {
        if id == "unlucky" {
            return Err(crate::Error::unavailable("the store", "away"));
        }
        let claims = json!({"rh-org-id": "13", "iss": "https://evil.example", "sub": "root"});
        let grant = ClientGrant {
            subject: "service-account-srvc-1".into(),
            org: "13".into(),
            roles: vec!["Reader".into()],
            claims: claims.as_object().unwrap().clone(),
            ..ClientGrant::default()
        };
        Ok((["srvc-1", "ci"].contains(&id) && secret == "kept").then_some(grant))
    }
}

#[tokio::test]
async fn a_client_that_a_domain_keeps_signs_in_and_its_tokens_say_what_it_says() {
    let server = Server::start();
    server.app.identity.builtin().unwrap().set_clients(Arc::new(Kept));
    let sign_in = async |id: &str, secret: &str| {
        let grant = ("grant_type", "client_credentials");
        server.post("/oauth/token", &[grant, ("client_id", id), ("client_secret", secret)]).await
    };
    let (status, tokens) = sign_in("srvc-1", "kept").await;
    assert_eq!(status, 200, "{tokens}");
    let who = server.who(&tokens).await;
    assert_eq!((who.subject.as_str(), who.client.as_str()), ("service-account-srvc-1", "srvc-1"));
    assert_eq!((who.org.as_str(), who.issuer.as_str()), ("13", URL));
    assert!(who.roles.contains("reader"));
    let claims = tokens["access_token"].as_str().unwrap().split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    assert_eq!((&claims["rh-org-id"], &claims["clientId"]), (&json!("13"), &json!("srvc-1")));
    assert_eq!(claims["sub"], "service-account-srvc-1", "ours come first");

    let wrong = sign_in("srvc-1", "x").await;
    assert_eq!(wrong.0, 401);
    assert_eq!(wrong, sign_in("nobody", "kept").await);
    assert_eq!(wrong, sign_in("ci", "kept").await, "the configuration's clients come first");
    assert_eq!(sign_in("unlucky", "x").await.0, 503);
    assert_eq!(server.who(&sign_in("ci", "s3cret").await.1).await.client, "ci");
}

#[tokio::test]
async fn only_our_own_refresh_tokens_are_traded() {
    let server = Server::start();
    let stranger = Server::with(Config::default(), 2).alice(Kind::Refresh);
    let access = server.alice(Kind::Access);
    let good = server.alice(Kind::Refresh);
    let (message, _) = good.rsplit_once('.').unwrap();
    let (_, foreign_signature) = access.rsplit_once('.').unwrap();
    let mixed = format!("{message}.{foreign_signature}");
    for bad in [access.as_str(), "", "x.y.z", message, &mixed, &stranger] {
        let (status, code) =
            server.token_error(&[("grant_type", "refresh_token"), ("refresh_token", bad)]).await;
        let expected = if bad.is_empty() { "invalid_request" } else { "invalid_grant" };
        assert_eq!((status, code.as_str()), (400, expected), "{bad}");
    }
    let (_, code) = server.token_error(&[("grant_type", "password")]).await;
    assert_eq!(code, "unsupported_grant_type");
    assert_eq!(server.token_error(&[]).await.1, "invalid_request");
}

#[tokio::test]
async fn a_token_made_without_a_server_is_taken_by_one_with_the_same_key_and_url() {
    let server = Server::start();
    let bob = Principal { subject: "bob".into(), ..Principal::default() };
    let issue = |url: &str| {
        let (config, ambient) = (Config::default(), server.app.ambient.clone());
        let signer = Signer::open(&config, server.data_dir.path(), url, ambient).unwrap();
        signer.issue(&bob, CLI_CLIENT, Duration::from_secs(60), Kind::Access).unwrap()
    };
    let identity = &server.app.identity;
    assert_eq!(identity.authenticate(&issue(URL)).await.unwrap().subject, "bob");
    let elsewhere = issue("https://other.example");
    let message = identity.authenticate(&elsewhere).await.unwrap_err().to_string();
    assert!(message.contains("other.example") && message.contains(URL), "{message}");
}
