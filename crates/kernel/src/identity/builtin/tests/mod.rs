//! The issuer's routes from end to end, without a network.

mod code;
mod device;
mod grants;
mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::Timestamp;
use crate::app::{App, AppState};
use crate::identity::{Client, Identity, Principal};
use crate::outbound::Outbound;
use crate::store::Store as _;
use crate::store::sqlite::Sqlite;

/// A server without a network.
struct Server {
    app: App,
    router: Router,
    store: Arc<Sqlite>,
    clock: Arc<AtomicI64>,
    data_dir: tempfile::TempDir,
}

const URL: &str = "https://mainstay.example";

impl Server {
    fn start() -> Server {
        let clients = vec![
            Client {
                id: "ci".into(),
                secret: Some("s3cret".into()),
                org: "acme".into(),
                roles: vec!["Admin-Read".into()],
                ..Client::default()
            },
            Client {
                id: "agent".into(),
                secret: Some("s3cret".into()),
                agent_of: Some("c1".into()),
                ..Client::default()
            },
        ];
        Server::with(Config { clients, ..Config::default() }, 1)
    }

    fn with(config: Config, seed: u64) -> Server {
        let clock = Arc::new(AtomicI64::new(1_700_000_000_000));
        let time = clock.clone();
        let ambient = Ambient::seeded(move || Timestamp(time.load(Ordering::SeqCst)), seed);
        let data_dir = tempfile::tempdir().unwrap();
        let outbound =
            Outbound::new(Default::default(), ambient.clone(), Arc::new(|_| ())).unwrap();
        let public_url = format!("{URL}/");
        let identity =
            Identity::start(config, data_dir.path(), &public_url, ambient.clone(), &outbound);
        let file = data_dir.path().join("mainstay.db");
        let store =
            Arc::new(Sqlite::open(&file, Ambient::system(), crate::store::uncounted()).unwrap());
        let app = App::new(AppState {
            store: store.clone(),
            blobs: crate::blob::Blobs::new(&[7; 32], ambient.clone()),
            ambient,
            identity: identity.unwrap(),
            outbound,
            metrics: Default::default(),
            url: URL.into(),
        });
        let router = routes::table()
            .into_iter()
            .fold(utoipa_axum::router::OpenApiRouter::new(), |all, one| all.routes(one));
        let router = router.split_for_parts().0.with_state(app.clone());
        Server { app, router, store, clock, data_dir }
    }

    fn pass_s(&self, seconds: i64) {
        self.clock.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// Who did what, in order.
    async fn audit(&self) -> Vec<String> {
        let entries = self.store.audit(&Default::default(), 100).await.unwrap();
        entries.iter().map(|e| format!("{} {}", e.entry.actor, e.entry.action)).collect()
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, _, body) =
            self.send(Request::builder().uri(path).body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn post_with(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> (StatusCode, HeaderMap, String) {
        let form =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("content-type", "application/x-www-form-urlencoded");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(Body::from(form)).unwrap()).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> (u16, Value) {
        let (status, headers, body) = self.post_with(path, fields, &[]).await;
        assert_eq!(headers["cache-control"], "no-store");
        (status.as_u16(), serde_json::from_str(&body).unwrap())
    }

    /// The error code that the token endpoint answers with.
    async fn token_error(&self, fields: &[(&str, &str)]) -> (u16, String) {
        let (status, body) = self.post("/oauth/token", fields).await;
        assert!(body.get("access_token").is_none(), "{body}");
        (status, body["error"].as_str().unwrap().to_owned())
    }

    async fn who(&self, tokens: &Value) -> Arc<Principal> {
        let token = tokens["access_token"].as_str().unwrap();
        self.app.identity.authenticate(token).await.unwrap()
    }

    fn alice(&self, kind: Kind) -> String {
        let alice = Principal {
            subject: "alice".into(),
            org: "acme".into(),
            org_admin: true,
            roles: ["admin-write".to_owned()].into(),
            ..Principal::default()
        };
        let signer = self.app.identity.builtin().unwrap().signer();
        signer.issue(&alice, CLI_CLIENT, Duration::from_secs(600), kind).unwrap()
    }
}
