//! Sessions: rotation, reuse, signing out, roles that are read again, expiry.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::*;
use crate::query::ObjectQuery;

const LOGOUT: &str = "/auth/realms/mainstay/protocol/openid-connect/logout";

fn refresh_token(tokens: &Value) -> String {
    tokens["refresh_token"].as_str().unwrap_or_else(|| panic!("{tokens}")).to_owned()
}

/// The session of a refresh token, and its number there.
fn number(token: &str) -> (String, i64) {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    (claims["sid"].as_str().unwrap().to_owned(), claims["num"].as_i64().unwrap())
}

impl Server {
    async fn refresh(&self, token: &str) -> (u16, Value) {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
        self.post("/oauth/token", &fields).await
    }

    /// The tokens of a refresh that succeeds.
    async fn refreshed(&self, token: &str) -> Value {
        let (status, tokens) = self.refresh(token).await;
        assert_eq!(status, 200, "{tokens}");
        tokens
    }

    async fn refusal(&self, token: &str) -> String {
        let (status, body) = self.refresh(token).await;
        assert_eq!((status, &body["error"]), (400, &json!("invalid_grant")), "{body}");
        body["error_description"].as_str().unwrap().to_owned()
    }

    async fn objects(&self, kind: &str) -> Vec<crate::Object> {
        let query = ObjectQuery { kind: Some(kind.into()), limit: 10, ..ObjectQuery::default() };
        self.store.find(&query).await.unwrap().objects
    }

    /// Changes Alice's account as an admin would.
    async fn change_account(&self, patch: Value) {
        let builtin = self.app.identity.builtin().unwrap();
        let admin = Principal {
            subject: "root".into(),
            roles: ["admin-full".to_owned()].into(),
            ..Principal::default()
        };
        let life = Duration::from_secs(60);
        let token = builtin.signer().issue(&admin, "x", life, Kind::Access).unwrap();
        let id = self.objects("account").await[0].key.id().to_owned();
        let (routes, config) = (crate::identity::routes(), crate::http::Config::default());
        let service = crate::http::router(self.app.clone(), routes, &config).unwrap();
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("/api/v1/accounts/{id}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from(patch.to_string()));
        let response = service.oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn each_refresh_answers_with_a_new_token_and_the_old_one_is_spent() {
    let server = Server::start();
    let offline = server.alice(Kind::Refresh);
    assert!(server.app.identity.authenticate(&offline).await.is_err(), "not for calling");
    let mut token = offline.clone();
    for path in ["/oauth/token", "/auth/realms/mainstay/protocol/openid-connect/token"] {
        let fields =
            [("grant_type", "refresh_token"), ("refresh_token", &token), ("client_id", "any")];
        let (status, tokens) = server.post(path, &fields).await;
        assert_eq!(status, 200, "{tokens}");
        let who = server.who(&tokens).await;
        assert_eq!((who.subject.as_str(), who.org.as_str()), ("alice", "acme"));
        assert!(who.org_admin && who.roles.contains("admin-write"));
        assert!(server.app.identity.authenticate(&refresh_token(&tokens)).await.is_err());
        assert_ne!(refresh_token(&tokens), token);
        token = refresh_token(&tokens);
        server.pass_s(60);
    }
    let named =
        [("grant_type", "refresh_token"), ("refresh_token", token.as_str()), ("client_id", "ci")];
    assert_eq!(server.token_error(&named).await.1, "invalid_client", "it has a secret");
    let session = &server.objects("session").await[0];
    assert!(!format!("{session:?}").contains(&token), "the store holds no token");
    server.pass_s(600);
    assert!(server.refusal(&token).await.contains("expired"));
}

#[tokio::test]
async fn a_token_that_is_used_twice_ends_the_session_of_thief_and_owner() {
    let server = Server::start();
    let stolen = refresh_token(&server.refreshed(&server.alice(Kind::Refresh)).await);
    let owners = refresh_token(&server.refreshed(&stolen).await);
    server.pass_s(31);
    assert!(server.refusal(&stolen).await.contains("used before"));
    assert!(server.refusal(&owners).await.contains("sign in again"));
    assert!(server.refusal(&stolen).await.contains("sign in again"));
    assert_eq!(server.audit().await, ["alice session.begin", "alice session.reuse"]);
}

#[tokio::test]
async fn an_offline_token_that_is_used_twice_ends_what_it_began() {
    let server = Server::start();
    let offline = server.alice(Kind::Refresh);
    let token = refresh_token(&server.refreshed(&offline).await);
    server.pass_s(31);
    assert!(server.refusal(&offline).await.contains("used before"));
    server.refusal(&token).await;
}

#[tokio::test]
async fn a_client_that_lost_the_reply_gets_the_same_successor() {
    let server = Server::start();
    let first = refresh_token(&server.refreshed(&server.alice(Kind::Refresh)).await);
    let second = refresh_token(&server.refreshed(&first).await);
    server.pass_s(29);
    let again = refresh_token(&server.refreshed(&first).await);
    assert_eq!(number(&again), number(&second));
    server.pass_s(2);
    server.refreshed(&second).await;

    let at_once = refresh_token(&server.refreshed(&server.alice(Kind::Refresh)).await);
    let both = futures::future::join_all((0..8).map(|_| server.refreshed(&at_once))).await;
    let successors: std::collections::BTreeSet<(String, i64)> =
        both.iter().map(|tokens| number(&refresh_token(tokens))).collect();
    assert_eq!(successors.len(), 1, "of many at once");
}

#[tokio::test]
async fn signing_out_and_revoking_end_the_session() {
    let server = Server::start();
    let logout = async |token: &str| {
        server.post_with(LOGOUT, &[("client_id", "any"), ("refresh_token", token)], &[]).await.0
    };
    let revoke = async |token: &str| {
        server.post_with("/oauth/revoke", &[("token", token)], &[]).await.0.as_u16()
    };
    let token = refresh_token(&server.refreshed(&server.alice(Kind::Refresh)).await);
    assert_eq!(logout(&token).await, 204);
    server.refusal(&token).await;
    assert_eq!(logout(&token).await, 204, "twice is as good as once");

    let token = refresh_token(&server.refreshed(&server.alice(Kind::Refresh)).await);
    assert_eq!(revoke(&token).await, 200);
    server.refusal(&token).await;

    let unused = server.alice(Kind::Refresh);
    assert_eq!(revoke(&unused).await, 200);
    server.refusal(&unused).await;

    let stranger = Server::with(Config::default(), 2).alice(Kind::Refresh);
    let access = server.alice(Kind::Access);
    for other in [stranger.as_str(), &access, "x", ""] {
        assert_eq!(logout(other).await, 400);
    }
    assert_eq!(revoke(&stranger).await, 200, "RFC 7009: it is not good here in any case");
    assert_eq!(revoke(&access).await, 400, "it cannot be revoked, and that is said");
    let document = server.get("/.well-known/openid-configuration").await;
    assert_eq!(document["revocation_endpoint"], format!("{URL}/oauth/revoke"));
}

#[tokio::test]
async fn roles_are_read_again_from_the_account_at_each_refresh() {
    let server = Server::start();
    let tokens = server.refreshed(&server.alice(Kind::Refresh)).await;
    assert!(server.who(&tokens).await.roles.contains("admin-write"));
    let older = server.alice(Kind::Refresh);
    server.pass_s(5);
    server.change_account(json!({"roles": [], "org_admin": false})).await;
    let tokens = server.refreshed(&refresh_token(&tokens)).await;
    let who = server.who(&tokens).await;
    assert!(who.roles.is_empty() && !who.org_admin, "{who:?}");
    let old = server.refreshed(&older).await;
    assert!(server.who(&old).await.roles.is_empty(), "a token from before brings nothing back");

    server.pass_s(5);
    let granted = server.refreshed(&server.alice(Kind::Refresh)).await;
    assert!(server.who(&granted).await.roles.contains("admin-write"), "a new one does");

    server.change_account(json!({"disabled": true})).await;
    assert!(server.refusal(&refresh_token(&granted)).await.contains("disabled"));
    let (status, body) = server.refresh(&server.alice(Kind::Refresh)).await;
    assert_eq!((status, &body["error"]), (400, &json!("access_denied")));
}

#[tokio::test]
async fn expired_sessions_are_removed() {
    let server = Server::start();
    let builtin = server.app.identity.builtin().unwrap();
    let token = refresh_token(&server.refreshed(&server.alice(Kind::Refresh)).await);
    assert_eq!(builtin.remove_expired_sessions(&*server.store).await.unwrap(), 0);
    server.pass_s(600);
    server.refreshed(&server.alice(Kind::Refresh)).await;
    assert_eq!(builtin.remove_expired_sessions(&*server.store).await.unwrap(), 1);
    assert_eq!(server.objects("session").await.len(), 1, "the other one");
    server.refusal(&token).await;
}

#[tokio::test]
async fn an_address_with_many_refused_tokens_is_not_looked_at_before_it_waits() {
    let config = Config { refused_per_s: 1, refused_burst: 5, ..Config::default() };
    let server = Server::with(config, 1);
    let (identity, good) = (&server.app.identity, server.alice(Kind::Access));
    let (message, _) = good.rsplit_once('.').unwrap();
    let (one, two) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
    let busy = |result: Result<Arc<Principal>>| matches!(result, Err(crate::Error::Busy { .. }));
    let verified = identity.verifications();
    for n in 0..5 {
        let forged = format!("{message}.{}", ["AAAA", "BBBB", "CCCC", "DDDD", "EEEE"][n]);
        assert!(!busy(identity.authenticate_from(&forged, one).await));
    }
    assert_eq!(identity.verifications() - verified, 5);
    assert!(busy(identity.authenticate_from(&good, one).await));
    assert_eq!(identity.verifications() - verified, 5, "no signature was checked");
    assert!(identity.authenticate_from(&good, two).await.is_ok(), "another address");
    assert!(identity.authenticate_from(&good, one).await.is_ok(), "it is known by now");
    server.pass_s(1);
    let other = server.alice(Kind::Refresh);
    assert!(!busy(identity.authenticate_from(&other, one).await), "after a while again");
}

#[tokio::test]
async fn sign_ins_that_succeed_are_not_limited() {
    let config = Config { refused_per_s: 1, refused_burst: 2, ..Config::default() };
    let server = Server::with(config, 1);
    for _ in 0..20 {
        let good = server.alice(Kind::Access);
        let address = "192.0.2.1".parse().ok();
        assert!(server.app.identity.authenticate_from(&good, address).await.is_ok());
    }
}
