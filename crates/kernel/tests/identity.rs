//! Tokens of another issuer, over a real socket: whose are taken, how often its keys are asked
//! for, what is remembered.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use kernel::identity::{Config, Identity, IssuerConfig, Principal};
use kernel::outbound::Outbound;
use kernel::{Ambient, Class, Error, Result, Timestamp};
use p256::SecretKey;
use p256::elliptic_curve::sec1::ToEncodedPoint;
use p256::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// A key of an issuer, in all its forms.
#[derive(Clone)]
struct Key {
    kid: &'static str,
    algorithm: Algorithm,
    private: EncodingKey,
    jwk: Value,
    public_pem: String,
    public_point: Vec<u8>,
}

impl Key {
    fn ec(kid: &'static str) -> Key {
        let secret = SecretKey::from_slice(&Ambient::system().random_bytes::<32>()).unwrap();
        let pem = secret.to_pkcs8_pem(LineEnding::LF).unwrap();
        let point = secret.public_key().to_encoded_point(false);
        let part = |bytes: Option<&p256::FieldBytes>| URL_SAFE_NO_PAD.encode(bytes.unwrap());
        Key {
            kid,
            algorithm: Algorithm::ES256,
            private: EncodingKey::from_ec_pem(pem.as_bytes()).unwrap(),
            jwk: json!({"kty": "EC", "kid": kid, "use": "sig", "crv": "P-256",
                "x": part(point.x()), "y": part(point.y())}),
            public_pem: secret.public_key().to_public_key_pem(LineEnding::LF).unwrap(),
            public_point: point.as_bytes().to_vec(),
        }
    }

    fn rsa(kid: &'static str) -> Key {
        let n = include_str!("fixtures/rsa-modulus-for-tests.txt");
        let pem = include_bytes!("fixtures/rsa-key-for-tests.pem");
        Key {
            kid,
            algorithm: Algorithm::RS256,
            private: EncodingKey::from_rsa_pem(pem).unwrap(),
            jwk: json!({"kty": "RSA", "kid": kid, "alg": "RS256", "n": n, "e": "AQAB"}),
            public_pem: n.to_owned(),
            public_point: URL_SAFE_NO_PAD.decode(n).unwrap(),
        }
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_as(Some(self.kid), claims)
    }

    fn sign_as(&self, kid: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: kid.map(Into::into), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.private).unwrap()
    }
}

/// An issuer that counts how often its keys are asked for, and a server that trusts it.
struct World {
    url: String,
    keys: Arc<Mutex<Vec<Value>>>,
    up: Arc<AtomicBool>,
    fetches: Arc<AtomicUsize>,
    clock: Arc<AtomicI64>,
    identity: Identity,
}

const START_S: i64 = 1_700_000_000;

impl World {
    async fn with(keys: &[&Key]) -> World {
        World::configured(keys, |config| config).await
    }

    async fn configured(keys: &[&Key], change: impl FnOnce(Config) -> Config) -> World {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/realm", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(keys.iter().map(|key| key.jwk.clone()).collect::<Vec<_>>()));
        let (fetches, up) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let document = json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string();
        let (served, counted, is_up) = (keys.clone(), fetches.clone(), up.clone());
        let serve_keys = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = if is_up.load(Ordering::SeqCst) {
                Ok(json!({"keys": *served.lock()}).to_string())
            } else {
                Err(StatusCode::SERVICE_UNAVAILABLE)
            };
            async move { answer }
        };
        let router = Router::new()
            .route("/realm/.well-known/openid-configuration", get(move || async move { document }))
            .route("/realm/keys", get(serve_keys));
        tokio::spawn(async move { axum::serve(listener, router).await });

        let clock = Arc::new(AtomicI64::new(START_S * 1000));
        let time = clock.clone();
        let ambient = Ambient::seeded(move || Timestamp(time.load(Ordering::SeqCst)), 1);
        // One attempt, so that each fetch is counted once.
        let outbound_config = kernel::outbound::Config { attempts_max: 1, ..Default::default() };
        let outbound = Outbound::new(outbound_config, ambient.clone(), Arc::new(|_| ())).unwrap();
        let config =
            Config { issuers: vec![IssuerConfig::new(&url, "mainstay")], ..Config::default() };
        let nowhere = std::path::Path::new("/nonexistent");
        let identity = Identity::start(change(config), nowhere, "http://us", ambient, &outbound);
        World { url, keys, up, fetches, clock, identity: identity.unwrap() }
    }

    fn now_s(&self) -> i64 {
        self.clock.load(Ordering::SeqCst) / 1000
    }

    fn pass_s(&self, seconds: i64) {
        self.clock.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    /// Good claims, with some replaced; `null` takes one away.
    fn claims(&self, other: Value) -> Value {
        let mut claims = json!({
            "iss": self.url, "sub": "s", "typ": "Bearer", "iat": self.now_s(),
            "exp": self.now_s() + 300, "username": "alice", "org_id": "acme", "aud": "mainstay",
        });
        for (name, value) in other.as_object().unwrap() {
            match value {
                Value::Null => claims.as_object_mut().unwrap().remove(name),
                value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
            };
        }
        claims
    }

    async fn take(&self, token: &str) -> Result<Arc<Principal>> {
        self.identity.authenticate(token).await
    }

    async fn refusal(&self, token: &str) -> String {
        match self.take(token).await {
            Err(Error::Unauthenticated { message, .. }) => message,
            other => panic!("{token} was not refused as unauthenticated: {other:?}"),
        }
    }
}

fn unsigned(header: Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(&header), part(claims))
}

#[tokio::test]
async fn tokens_signed_by_either_kind_of_key_become_principals() {
    let (ec, rsa) = (Key::ec("e"), Key::rsa("r"));
    let world = World::with(&[&ec, &rsa]).await;
    let roles = json!({"realm_access": {"roles": ["KAS-fleet-manager-admin-full"]}});
    for key in [&ec, &rsa] {
        let who = world.take(&key.sign(&world.claims(roles.clone()))).await.unwrap();
        assert_eq!((who.subject.as_str(), who.org.as_str()), ("alice", "acme"));
        assert_eq!(who.issuer, world.url);
        assert!(kernel::identity::Action::AdminFull.allows(&who));
    }
    assert!(world.take(&ec.sign_as(None, &world.claims(json!({})))).await.is_ok());
}

#[tokio::test]
async fn a_token_cannot_choose_how_it_is_checked() {
    let (ec, rsa) = (Key::ec("e"), Key::rsa("r"));
    let world = World::with(&[&ec, &rsa]).await;
    let claims = world.claims(json!({}));
    assert!(world.take(&ec.sign(&claims)).await.is_ok());
    // Everyone has the public key: as a shared secret it must be worth nothing.
    for key in [&ec, &rsa] {
        for secret in [
            key.public_pem.as_bytes(),
            key.public_pem.trim().as_bytes(),
            &key.public_point,
            key.jwk.to_string().as_bytes(),
            b"",
        ] {
            for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let header = Header { kid: Some(key.kid.into()), ..Header::new(algorithm) };
                let forged =
                    jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(secret));
                let why = world.refusal(&forged.unwrap()).await;
                assert!(why.contains("HS") && why.contains("ES256"), "{why}");
            }
        }
    }
    let good = ec.sign(&claims);
    let signature = good.rsplit_once('.').unwrap().1;
    for algorithm in ["none", "None", "NONE", "", "es256", "ES384", "EdDSA"] {
        let forged = unsigned(json!({"alg": algorithm, "kid": "e"}), &claims);
        for signature in ["", signature] {
            let why = world.refusal(&format!("{forged}.{signature}")).await;
            assert!(why.contains("are not accepted"), "{algorithm}: {why}");
        }
    }
    // A key is only for the algorithms of its own kind.
    for (algorithm, kid) in [("RS256", "e"), ("ES256", "r")] {
        let forged = unsigned(json!({"alg": algorithm, "kid": kid}), &claims);
        let why = world.refusal(&format!("{forged}.{signature}")).await;
        assert!(why.contains("does not match the key"), "{why}");
    }
    let own = unsigned(json!({"alg": "ES256", "kid": "e", "jwk": Key::ec("e").jwk}), &claims);
    assert!(world.refusal(&format!("{own}.{signature}")).await.contains("signature is wrong"));
    let critical = unsigned(json!({"alg": "ES256", "kid": "e", "crit": ["b64"]}), &claims);
    assert!(world.refusal(&format!("{critical}.{signature}")).await.contains("crit"));
}

#[tokio::test]
async fn what_is_wrong_with_a_token_is_said() {
    let (key, stranger) = (Key::ec("k"), Key::ec("k"));
    let world = World::with(&[&key]).await;
    let now = world.now_s();
    let sign = |other: Value| key.sign(&world.claims(other));
    for (token, expected) in [
        (sign(json!({"exp": now - 60})), "expired at"),
        (sign(json!({"exp": null})), "no expiry"),
        (sign(json!({"iat": now + 61})), "not yet valid"),
        (sign(json!({"nbf": now + 61})), "not yet valid"),
        (sign(json!({"iss": "https://evil.example"})), "is from \"https://evil.example\""),
        (sign(json!({"iss": null})), "does not name its issuer"),
        (sign(json!({"typ": "Refresh"})), "refresh token"),
        (sign(json!({"typ": "ID"})), "ID token"),
        (sign(json!({"username": null, "sub": null})), "has no subject"),
        (stranger.sign(&world.claims(json!({}))), "signature is wrong"),
        (sign(json!({"x": "y".repeat(20_000)})), "larger than"),
        ("x".repeat(1 << 20), "larger than"),
        (String::new(), "malformed"),
        ("a.b".into(), "malformed"),
        ("a.b.c.d".into(), "malformed"),
        ("😀.😀.😀".into(), "malformed"),
    ] {
        let why = world.refusal(&token).await;
        assert!(why.contains(expected), "{why:?} does not say {expected:?}");
        assert!(why.len() < 500, "{why}");
    }
    for other in [json!({"exp": now - 59}), json!({"iat": now + 60, "nbf": now + 60})] {
        assert!(world.take(&sign(other.clone())).await.is_ok(), "{other} is within the skew");
    }
}

#[tokio::test]
async fn every_truncation_and_every_changed_part_is_refused() {
    let key = Key::ec("k");
    let world = World::with(&[&key]).await;
    let good = key.sign(&world.claims(json!({})));
    assert!(world.take(&good).await.is_ok());
    for length in 0..good.len() {
        world.refusal(&good[..length]).await;
    }
    let richer = key.sign(&world.claims(json!({"org_id": "other"})));
    let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (a, b) = (parts(&good), parts(&richer));
    let mixed = format!("{}.{}.{}", a[0], b[1], a[2]);
    assert!(world.refusal(&mixed).await.contains("signature is wrong"));
}

#[tokio::test]
async fn a_token_for_another_service_or_for_none_is_refused() {
    let key = Key::ec("k");
    let world = World::with(&[&key]).await;
    let good = key.sign(&world.claims(json!({"aud": ["x", "mainstay"]})));
    assert!(world.take(&good).await.is_ok());
    for audience in [json!("x"), json!([]), json!(null), json!("mainstay2")] {
        let other = key.sign(&world.claims(json!({"aud": audience})));
        assert!(world.refusal(&other).await.contains("`aud` must be mainstay"), "{audience}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_are_asked_for_once_however_many_need_them_and_made_up_ones_once_a_minute() {
    async fn all(world: &Arc<World>, tokens: Vec<String>) -> Vec<Result<Arc<Principal>>> {
        let mut tasks = tokio::task::JoinSet::new();
        for token in tokens {
            let world = world.clone();
            tasks.spawn(async move { world.take(&token).await });
        }
        tasks.join_all().await
    }
    let key = Key::ec("k");
    let world = Arc::new(World::with(&[&key]).await);
    let good = (0..50).map(|n| key.sign(&world.claims(json!({"jti": n})))).collect();
    assert!(all(&world, good).await.iter().all(|one| one.is_ok()));
    assert_eq!(world.fetches(), 1);

    for minute in 0..3 {
        world.pass_s(60);
        let forge = |n| key.sign_as(Some(&format!("made-up-{n}")), &world.claims(json!({})));
        for one in all(&world, (0..50).map(forge).collect()).await {
            assert!(one.unwrap_err().to_string().contains("does not have"));
        }
        world.pass_s(59);
        world.refusal(&forge(0)).await;
        assert_eq!(world.fetches(), 2 + minute);
        world.pass_s(-59);
    }
}

#[tokio::test]
async fn a_signature_is_computed_once_until_the_token_expires() {
    let key = Key::ec("k");
    let world = World::with(&[&key]).await;
    let token = key.sign(&world.claims(json!({})));
    for _ in 0..10 {
        assert!(world.take(&token).await.is_ok());
    }
    assert_eq!(world.identity.verifications(), 1);
    world.pass_s(359);
    assert!(world.take(&token).await.is_ok());
    world.pass_s(1);
    assert!(world.refusal(&token).await.contains("expired"));
    assert_eq!(world.identity.verifications(), 1);
}

#[tokio::test]
async fn a_key_that_its_issuer_gave_up_takes_its_tokens_with_it_and_others_stay() {
    let (old, kept, new) = (Key::ec("old"), Key::ec("kept"), Key::ec("new"));
    let world = World::with(&[&old, &kept]).await;
    let claims = world.claims(json!({}));
    let (by_old, by_kept) = (old.sign(&claims), kept.sign(&claims));
    assert!(world.take(&by_old).await.is_ok() && world.take(&by_kept).await.is_ok());
    assert_eq!(world.identity.verifications(), 2);

    *world.keys.lock() = vec![kept.jwk.clone(), new.jwk.clone()];
    world.pass_s(60);
    assert!(world.take(&new.sign(&claims)).await.is_ok(), "a new key is found");
    assert!(world.refusal(&by_old).await.contains("no longer has"));
    assert!(world.take(&by_kept).await.is_ok());
    assert_eq!(world.identity.verifications(), 3, "what the kept key signed was remembered");

    // The same name, another key: the look that is due now and then finds it.
    let replaced = Key::ec("kept");
    *world.keys.lock() = vec![replaced.jwk.clone()];
    world.identity.refresh_keys().await;
    assert!(world.refusal(&by_kept).await.contains("signature is wrong"));
    assert!(world.take(&replaced.sign(&claims)).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_is_down_keeps_its_keys_and_one_that_never_was_up_is_unavailable() {
    let key = Key::ec("k");
    let world = World::with(&[&key]).await;
    world.up.store(false, Ordering::SeqCst);
    let token = key.sign(&world.claims(json!({})));
    assert_eq!(world.take(&token).await.unwrap_err().class(), Class::Transient);
    assert_eq!(world.take(&token).await.unwrap_err().class(), Class::Transient);
    assert_eq!(world.fetches(), 1);

    world.up.store(true, Ordering::SeqCst);
    world.pass_s(5);
    assert!(world.take(&token).await.is_ok(), "tried again soon, since there were no keys");

    world.up.store(false, Ordering::SeqCst);
    world.identity.refresh_keys().await;
    assert!(world.take(&key.sign(&world.claims(json!({"jti": "2"})))).await.is_ok());
    *world.keys.lock() = Vec::new();
    world.up.store(true, Ordering::SeqCst);
    world.pass_s(5);
    world.identity.refresh_keys().await;
    assert!(world.take(&key.sign(&world.claims(json!({"jti": "3"})))).await.is_ok());
}

#[tokio::test]
async fn a_waiter_that_leaves_does_not_take_the_fetch_with_it() {
    let key = Key::ec("k");
    let world = World::with(&[&key]).await;
    let token = key.sign(&world.claims(json!({})));
    let first = world.take(&token);
    // Begins the fetch and is dropped before the answer: polled once, then let go.
    {
        let mut first = std::pin::pin!(first);
        assert!(futures::poll!(&mut first).is_pending());
    }
    assert!(world.take(&token).await.is_ok());
    assert_eq!(world.fetches(), 1);
}
