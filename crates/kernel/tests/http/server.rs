//! A whole server in process, with a few routes that misbehave on demand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as Raw;
use axum::http::request::Builder;
use axum::http::{HeaderMap, Request};
use axum::response::{IntoResponse, Response};
use kernel::blob::Blobs;
use kernel::change::{Change, Write};
use kernel::http::{self, Body, Caller, Config, HttpService, RequestContext, Routes};
use kernel::identity::builtin::Kind;
use kernel::identity::{self, Action, Identity, Principal};
use kernel::kind::{KindInfo, Presenter};
use kernel::log::{AuditEntry, AuditFilter};
use kernel::outbound::{self, Outbound};
use kernel::queue::QueueRow;
use kernel::store::{WorkFilter, commit};
use kernel::telemetry::Metrics;
use kernel::{Ambient, App, AppState, Error, Key, Object, Store, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use testkit::Memory;
use testkit::stores::Fresh;
use tower::ServiceExt as _;
use utoipa_axum::routes;

pub struct TestServer {
    tokens: HashMap<&'static str, String>,
    pub store: Arc<dyn Store>,
    pub app: App,
    pub config: Config,
    pub router: HttpService,
}

pub struct TestResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    pub body: Value,
}

/// The callers: alice and bob of acme, carol of globex, dave of no organisation, and two admins.
fn people() -> [Principal; 6] {
    let person = |subject: &str, org: &str, roles: &[&str]| Principal {
        subject: subject.into(),
        org: org.into(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..Principal::default()
    };
    [
        person("alice", "acme", &[]),
        person("bob", "acme", &[]),
        person("carol", "globex", &[]),
        person("dave", "", &[]),
        person("reader", "acme", &["admin-read"]),
        person("admin", "acme", &["admin-full"]),
    ]
}

/// Starts the built-in issuer, and issues a token for every caller.
fn identity(ambient: &Ambient, outbound: &Outbound) -> (Identity, HashMap<&'static str, String>) {
    let dir = tempfile::tempdir().unwrap();
    let url = "http://localhost";
    let config = identity::Config::default();
    let identity = Identity::start(config, dir.path(), url, ambient.clone(), outbound).unwrap();
    let signer = identity.builtin().unwrap().signer();
    let names = ["alice", "bob", "carol", "dave", "reader", "admin"];
    let hour = Duration::from_secs(3600);
    let tokens = names
        .into_iter()
        .zip(people())
        .map(|(name, who)| (name, signer.issue(&who, "tests", hour, Kind::Access).unwrap()))
        .collect();
    (identity, tokens)
}

fn app(store: Arc<dyn Store>, ambient: Ambient) -> (App, HashMap<&'static str, String>) {
    let metrics = Arc::new(Metrics::new());
    let unwatched: outbound::Observe = Arc::new(|_| {});
    let outbound = Outbound::new(outbound::Config::default(), ambient.clone(), unwatched).unwrap();
    let url = "http://localhost".into();
    let (identity, tokens) = identity(&ambient, &outbound);
    let blobs = Blobs::new(&[7; 32], ambient.clone());
    let app = App::new(AppState { store, ambient, identity, outbound, metrics, blobs, url });
    app.kinds().add(KindInfo::new("widget", "widgets", Presenter::Whole)).unwrap();
    (app, tokens)
}

impl TestServer {
    pub fn new() -> TestServer {
        TestServer::with(Config::default(), Ambient::system())
    }

    pub fn with(config: Config, ambient: Ambient) -> TestServer {
        TestServer::over(Arc::new(Memory::default()), config, ambient)
    }

    /// On a store of any kind.
    pub fn on(fresh: &Fresh) -> TestServer {
        TestServer::over(fresh.store.clone(), Config::default(), Ambient::system())
    }

    /// On a store of any kind, with other routes.
    pub fn on_with(fresh: &Fresh, routes: Routes) -> TestServer {
        TestServer::around(fresh.store.clone(), routes, Config::default(), Ambient::system())
    }

    pub fn over(store: Arc<dyn Store>, config: Config, ambient: Ambient) -> TestServer {
        TestServer::around(store, misbehaving_routes(), config, ambient)
    }

    /// With other routes.
    pub fn routing(routes: Routes, config: Config) -> TestServer {
        TestServer::around(Arc::new(Memory::default()), routes, config, Ambient::system())
    }

    pub fn around(
        store: Arc<dyn Store>,
        routes: Routes,
        config: Config,
        ambient: Ambient,
    ) -> TestServer {
        let (app, tokens) = app(store.clone(), ambient);
        let router = http::router(app.clone(), routes, &config).expect("a router");
        TestServer { tokens, store, app, config, router }
    }

    /// The same surface over another store. Its tokens are its own.
    pub fn router_over(&self, store: Arc<dyn Store>) -> HttpService {
        let (app, _) = app(store, self.app.ambient.clone());
        http::router(app, misbehaving_routes(), &self.config).expect("a router")
    }

    pub async fn send(&self, request: Request<Raw>) -> TestResponse {
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        TestResponse::read(response).await
    }

    /// A request of `who`; without a token if empty, with an invalid one if unknown.
    pub fn request(&self, method: &str, who: &str, path: &str) -> Builder {
        let request = Request::builder().method(method).uri(path);
        match who {
            "" => request,
            who => request.header("authorization", format!("Bearer {}", self.token(who))),
        }
    }

    pub fn token<'a>(&'a self, who: &'a str) -> &'a str {
        self.tokens.get(who).map_or(who, String::as_str)
    }

    pub async fn get(&self, who: &str, path: &str) -> TestResponse {
        self.send(self.request("GET", who, path).body(Raw::empty()).unwrap()).await
    }

    pub async fn post(&self, who: &str, path: &str, body: &str) -> TestResponse {
        let request = self.request("POST", who, path).header("content-type", "application/json");
        self.send(request.body(Raw::from(body.to_owned())).unwrap()).await
    }

    /// Creates an object; its event goes with it.
    pub async fn create(&self, id: &str, org: &str, owner: &str, phase: &str) -> Object {
        let key = Key::new("widget", id);
        let mut object = Object::new(key, org, owner, &format!("Blue {id}"), phase, self.now());
        object.labels.insert("team".into(), "core".into());
        let write = Some(Write::create(object.clone(), phase.to_owned()));
        self.commit(Change { write, ..Change::default() }).await;
        object
    }

    /// Moves an object to a phase, at its current generation.
    pub async fn transition(&self, id: &str, phase: &str) {
        let mut object = self.object(id).await;
        object.phase = phase.into();
        object.observed = object.generation;
        object.deleted_at = (phase == "deleted").then(|| self.now());
        let write = Some(Write::update(object, phase.to_owned()));
        self.commit(Change { write, ..Change::default() }).await;
    }

    pub async fn object(&self, id: &str) -> Object {
        self.store.get(&[Key::new("widget", id)]).await.unwrap().remove(0)
    }

    pub async fn row(&self, id: &str) -> QueueRow {
        let filter = WorkFilter { key: Some(Key::new("widget", id)), ..WorkFilter::default() };
        self.store.work(&filter, 1).await.unwrap().remove(0)
    }

    /// Every entry of the audit log.
    pub async fn audit(&self) -> Vec<AuditEntry> {
        self.store.audit(&AuditFilter::default(), 1000).await.unwrap()
    }

    pub async fn commit(&self, change: Change) {
        commit(self.store.as_ref(), change, self.now()).await.expect("committed");
    }

    pub fn now(&self) -> Timestamp {
        self.app.ambient.now()
    }
}

impl TestResponse {
    pub async fn read(response: Response) -> TestResponse {
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 10 << 20).await.expect("the body");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        TestResponse { status: parts.status.as_u16(), headers: parts.headers, text, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    pub fn error(&self, field: &str) -> &str {
        self.body["error"][field].as_str().unwrap_or("")
    }
}

/// Waits for a condition; fails the test if it is not met in time.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn misbehaving_routes() -> Routes {
    let own_shape = |error: &Error, context: &RequestContext| {
        let reason = format!("own: {error} ({})", context.request_id);
        (http::status(error), reason).into_response()
    };
    Routes::new()
        .route(Action::Public, routes!(panics))
        .route(Action::Public, routes!(never))
        .route(Action::Public, routes!(breaks))
        .route(Action::Public, routes!(traced))
        .route(Action::Public, routes!(large))
        .route(Action::Write, routes!(echo))
        .merge(
            Routes::new()
                .route(Action::Read, routes!(own))
                .errors("/api/own/", Arc::new(own_shape)),
        )
}

#[utoipa::path(get, path = "/test/panics")]
async fn panics() -> &'static str {
    panic!("secret detail")
}

#[utoipa::path(get, path = "/test/never")]
async fn never() {
    std::future::pending().await
}

#[utoipa::path(get, path = "/test/breaks")]
async fn breaks() -> Result<(), Error> {
    Err(Error::internal("the store", "secret detail"))
}

#[utoipa::path(get, path = "/test/traced")]
async fn traced() -> String {
    kernel::telemetry::current_traceparent().unwrap_or_default()
}

#[utoipa::path(get, path = "/test/large")]
async fn large() -> String {
    "all work and no play ".repeat(1000)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Echo {
    name: String,
}

#[utoipa::path(post, path = "/test/echo")]
async fn echo(Caller(who): Caller, body: Body<Echo>) -> Result<String, Error> {
    http::valid_name("name", &body.value.name)?;
    Ok(format!("{} from {}", body.value.name, who.subject))
}

#[utoipa::path(get, path = "/api/own/thing")]
async fn own() -> Result<(), Error> {
    Err(Error::NotFound("the thing".into()))
}
