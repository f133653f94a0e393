//! The device grant: begun by a program, decided by a person, redeemed once.

use super::*;
use crate::http::RequestContext;
use crate::identity::builtin::grants::DEVICE_GRANT;

struct Begun {
    device_code: String,
    user_code: String,
}

impl Server {
    async fn begin(&self) -> Begun {
        let (status, body) =
            self.post("/oauth/device_authorization", &[("client_id", CLI_CLIENT)]).await;
        assert_eq!(status, 200, "{body}");
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        assert_eq!(text("verification_uri"), format!("{URL}/oauth/device"));
        assert_eq!((&body["expires_in"], &body["interval"]), (&600.into(), &5.into()));
        Begun { device_code: text("device_code"), user_code: text("user_code") }
    }

    async fn decide(&self, user_code: &str, token: &str, decision: &str) -> (u16, Value) {
        let fields = [("user_code", user_code), ("token", token), ("decision", decision)];
        self.post("/oauth/device", &fields).await
    }

    async fn poll(&self, begun: &Begun) -> (u16, Value) {
        let fields = [
            ("grant_type", DEVICE_GRANT),
            ("device_code", begun.device_code.as_str()),
            ("client_id", CLI_CLIENT),
        ];
        self.post("/oauth/token", &fields).await
    }

    /// The error of the next look at a grant, five seconds later.
    async fn poll_error(&self, begun: &Begun) -> String {
        self.pass_s(POLL_S);
        let (status, body) = self.poll(begun).await;
        assert_eq!(status, 400, "{body}");
        body["error"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_device_acts_for_the_person_who_approved_it_once() {
    let server = Server::start();
    let begun = server.begin().await;
    assert_eq!(server.poll_error(&begun).await, "authorization_pending");
    let typed = begun.user_code.to_lowercase().replace('-', " ");
    let (status, said) = server.decide(&typed, &server.alice(Kind::Access), "approve").await;
    assert_eq!((status, &said["subject"]), (200, &"alice".into()), "{said}");

    server.pass_s(POLL_S);
    let (status, tokens) = server.poll(&begun).await;
    assert_eq!(status, 200, "{tokens}");
    let who = server.who(&tokens).await;
    assert_eq!((who.subject.as_str(), who.org.as_str(), who.org_admin), ("alice", "acme", true));
    let refresh = [
        ("grant_type", "refresh_token"),
        ("refresh_token", tokens["refresh_token"].as_str().unwrap()),
    ];
    assert_eq!(server.post("/oauth/token", &refresh).await.0, 200);

    assert_eq!(server.poll_error(&begun).await, "invalid_grant");
    let again = server.decide(&begun.user_code, &server.alice(Kind::Access), "approve").await;
    assert_eq!(again.0, 400);
    assert_eq!(
        server.audit().await,
        ["alice device-grant.approve", "alice device-grant.redeem", "alice session.begin"]
    );
}

#[tokio::test]
async fn of_two_that_redeem_at_once_one_gets_the_token() {
    let server = Server::start();
    let begun = server.begin().await;
    server.decide(&begun.user_code, &server.alice(Kind::Access), "approve").await;
    let now = server.app.ambient.now();
    let find = || {
        crate::identity::builtin::device::PendingGrant::find(
            &*server.store,
            &begun.device_code,
            CLI_CLIENT,
        )
    };
    let (first, second) = (find().await.unwrap(), find().await.unwrap());
    assert_eq!(first.redeem(&*server.store, now).await.unwrap().subject, "alice");
    assert_eq!(second.redeem(&*server.store, now).await.err().unwrap().code, "invalid_grant");
}

#[tokio::test]
async fn a_denied_grant_an_expired_one_and_an_impatient_device_get_nothing() {
    let server = Server::start();
    let denied = server.begin().await;
    assert_eq!(server.decide(&denied.user_code, &server.alice(Kind::Access), "deny").await.0, 200);
    assert_eq!(server.poll_error(&denied).await, "access_denied");

    let impatient = server.begin().await;
    assert_eq!(server.poll_error(&impatient).await, "authorization_pending");
    assert_eq!(server.poll(&impatient).await.1["error"], "slow_down");

    let late = server.begin().await;
    server.pass_s(600);
    let (status, _) = server.decide(&late.user_code, &server.alice(Kind::Access), "approve").await;
    assert_eq!(status, 400);
    assert_eq!(server.poll_error(&late).await, "expired_token");
}

#[tokio::test]
async fn a_code_of_someone_elses_device_or_client_is_worth_nothing() {
    let server = Server::start();
    let begun = server.begin().await;
    server.decide(&begun.user_code, &server.alice(Kind::Access), "approve").await;
    let (id, _) = begun.device_code.split_once('.').unwrap();
    let guessed = format!("{id}.{}", "0".repeat(64));
    for (code, client) in [
        (begun.device_code.as_str(), "other"),
        (&guessed, CLI_CLIENT),
        (id, CLI_CLIENT),
        ("../../x.y", CLI_CLIENT),
        ("\0.\0", CLI_CLIENT),
    ] {
        let fields = [("grant_type", DEVICE_GRANT), ("device_code", code), ("client_id", client)];
        assert_eq!(server.token_error(&fields).await, (400, "invalid_grant".into()), "{code}");
    }
    let (id, secret) = begun.device_code.split_once('.').unwrap();
    let stored = server.store.command(&format!("device-grant/{id}")).await.unwrap().unwrap();
    assert!(!stored.reply.body.text().contains(secret), "the store holds only its hash");
    server.pass_s(POLL_S);
    assert_eq!(server.poll(&begun).await.0, 200, "none of these used it up");
}

#[tokio::test]
async fn only_a_person_with_a_good_token_decides_and_not_by_guessing() {
    let server = Server::start();
    let begun = server.begin().await;
    let refresh = server.alice(Kind::Refresh);
    for bad in ["", "nonsense", refresh.as_str()] {
        let (status, _) = server.decide(&begun.user_code, bad, "approve").await;
        assert!([400, 401].contains(&status), "{bad}: {status}");
    }
    let agent =
        Principal { agent_of: Some("c1".into()), subject: "a".into(), ..Principal::default() };
    let signer = server.app.identity.builtin().unwrap().signer();
    let agent = signer.issue(&agent, "x", Duration::from_secs(60), Kind::Access).unwrap();
    assert_eq!(
        server.decide(&begun.user_code, &agent, "approve").await.1["error"],
        "access_denied"
    );

    let alice = server.alice(Kind::Access);
    for _ in 0..5 {
        assert_eq!(server.decide("BCDF-GHJK", &alice, "approve").await.0, 400);
    }
    assert_eq!(server.decide(&begun.user_code, &alice, "approve").await.0, 429);
    server.pass_s(10);
    assert_eq!(server.decide(&begun.user_code, &alice, "approve").await.0, 200);
}

#[tokio::test]
async fn strangers_cannot_begin_grants_without_end() {
    let server = Server::start();
    let fields = [("client_id", CLI_CLIENT)];
    let mut begun = 0;
    while server.post("/oauth/device_authorization", &fields).await.0 == 200 {
        begun += 1;
        assert!(begun <= 30, "there is no limit");
    }
    assert_eq!(begun, 30, "of all together");
    server.pass_s(2);
    assert_eq!(server.post("/oauth/device_authorization", &fields).await.0, 200);
    let (status, body) =
        server.post("/oauth/device_authorization", &[("client_id", "unknown")]).await;
    assert_eq!((status, &body["error"]), (401, &"invalid_client".into()));
}

#[tokio::test]
async fn one_address_cannot_use_up_what_others_need() {
    let server = Server::start();
    let begin = async |address: &str| {
        let mut context =
            RequestContext::detached("r", Method::POST, "/oauth/device_authorization");
        context.origin = address.parse().ok();
        let request = Request::builder()
            .method(Method::POST)
            .uri("/oauth/device_authorization")
            .header("content-type", "application/x-www-form-urlencoded")
            .extension(Arc::new(context))
            .body(Body::from(format!("client_id={CLI_CLIENT}")));
        server.send(request.unwrap()).await.0.as_u16()
    };
    for _ in 0..5 {
        assert_eq!(begin("192.0.2.1").await, 200);
    }
    assert_eq!(begin("192.0.2.1").await, 429);
    assert_eq!(begin("192.0.2.2").await, 200);
    for n in 0..5 {
        assert_eq!(begin(&format!("2001:db8:1:2::{n}")).await, 200);
    }
    assert_eq!(begin("2001:db8:1:2:ffff::1").await, 429, "a network is one address");
    assert_eq!(begin("2001:db8:1:3::1").await, 200);
    server.pass_s(10);
    assert_eq!(begin("192.0.2.1").await, 200);
}

#[tokio::test]
async fn the_page_asks_for_code_and_token_and_repeats_nothing_as_markup() {
    let server = Server::start();
    let uri = "/oauth/device?user_code=%22%3E%3Cscript%3E";
    let (status, headers, body) =
        server.send(Request::builder().uri(uri).body(Body::empty()).unwrap()).await;
    assert_eq!(status, 200);
    assert!(!body.contains("<script>") && body.contains("&lt;script&gt;"), "{body}");
    assert!(
        headers["content-security-policy"].to_str().unwrap().contains("frame-ancestors 'none'")
    );

    let begun = server.begin().await;
    let alice = server.alice(Kind::Access);
    let headers = [("accept", "text/html"), ("authorization", &format!("Bearer {alice}"))];
    let fields = [("user_code", begun.user_code.as_str())];
    let (status, _, body) = server.post_with("/oauth/device", &fields, &headers).await;
    assert_eq!(status, 200);
    assert!(body.contains("mainstay-cli now acts for alice"), "{body}");
}

#[tokio::test]
async fn a_server_that_issues_no_tokens_says_so_on_every_route() {
    let server = Server::with(Config { builtin: Some(false), ..Config::default() }, 1);
    for path in ["/.well-known/openid-configuration", "/oauth/jwks", "/oauth/device"] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        assert_eq!(server.send(request).await.0, 404, "{path}");
    }
    for path in ["/oauth/token", "/oauth/device_authorization", "/oauth/device"] {
        let (status, _, _) = server.post_with(path, &[("client_id", CLI_CLIENT)], &[]).await;
        assert_eq!(status, 404, "{path}");
    }
}
