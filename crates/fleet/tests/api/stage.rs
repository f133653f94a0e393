//! A whole server in process: the fleet's domain on a fresh store, its workers running, and a data
//! plane whose agent is simulated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use fleet::model::cluster::{self, Capacity, Operator, Phase, Provider, Spec, Status};
use fleet::{Config, FleetDomain};
use kernel::change::Write;
use kernel::driver::Driver;
use kernel::http::{self, HttpService};
use kernel::identity::{self, Identity};
use kernel::outbound::{self, Outbound};
use kernel::telemetry::Metrics;
use kernel::{Ambient, App, AppState, Change, Domain as _, Json, Object, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::stores::{self, Fresh};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::agent::Agent;
use crate::callers::{self, CLUSTER, OTHER_CLUSTER, URL};
use crate::files;

/// An API under test: one of the kinds that come along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api {
    pub name: &'static str,
    pub plural: &'static str,
    pub prefix: &'static str,
    pub codes: &'static str,
}

pub const KAFKA: Api =
    Api { name: "kafka", plural: "kafkas", prefix: "/api/kafkas_mgmt/v1", codes: "KAFKAS-MGMT" };

pub const DINOSAUR: Api = Api {
    name: "dinosaur",
    plural: "dinosaurs",
    prefix: "/api/dinosaurs_mgmt/v1",
    codes: "DINOSAURS-MGMT",
};

/// By which others know the cluster that takes instances.
pub const EXTERNAL_ID: &str = "c1c1c1c1-c1c1-4c1c-8c1c-c1c1c1c1c1c1";

impl Api {
    /// A path of its resource, as in `/kafkas` or `/kafkas/ID`.
    pub fn path(&self, rest: &str) -> String {
        format!("{}/{}{rest}", self.prefix, self.plural)
    }
}

pub struct Stage {
    pub app: App,
    pub fleet: Arc<fleet::Fleet>,
    pub store: Arc<dyn Store>,
    pub router: HttpService,
    pub domain: FleetDomain,
    tokens: HashMap<&'static str, String>,
    workers: (CancellationToken, JoinHandle<()>),
    /// What is left behind by it goes when nobody uses it any more.
    place: Arc<Place>,
    _stop: DropGuard,
}

/// Where the files and the data of one or more servers are.
struct Place {
    dir: TempDir,
    fresh: Fresh,
}

impl Stage {
    /// On SQLite, with the usual files.
    pub async fn new() -> Stage {
        Stage::configured(|_| {}).await
    }

    pub async fn configured(change: impl FnOnce(&mut Config)) -> Stage {
        let fresh = stores::sqlite().await.expect("SQLite is always there");
        Stage::on(fresh, change).await
    }

    /// On PostgreSQL; none without a server.
    pub async fn on_postgres() -> Option<Stage> {
        Some(Stage::on(stores::postgres().await?, |_| {}).await)
    }

    pub async fn on(fresh: Fresh, change: impl FnOnce(&mut Config)) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let mut config = files::config(dir.path());
        change(&mut config);
        let store = fresh.store.clone();
        Stage::start(Arc::new(Place { dir, fresh }), store, config, true).await
    }

    /// Another server on the same data: only PostgreSQL is for more than one.
    pub async fn replica(&self) -> Stage {
        let store = self.place.fresh.replica().await.expect("a store for many");
        Stage::start(self.place.clone(), store, self.domain.config.clone(), false).await
    }

    async fn start(place: Arc<Place>, store: Arc<dyn Store>, config: Config, first: bool) -> Stage {
        let dir = &place.dir;
        let ambient = Ambient::system();
        let unwatched: outbound::Observe = Arc::new(|_| {});
        let outbound =
            Outbound::new(outbound::Config::default(), ambient.clone(), unwatched).unwrap();
        let trusted = identity::Config::default();
        let identity =
            Identity::start(trusted, dir.path(), URL, ambient.clone(), &outbound).unwrap();
        let app = App::new(AppState {
            store: store.clone(),
            ambient: ambient.clone(),
            blobs: kernel::blob::Blobs::new(&[7; 32], ambient.clone()),
            identity,
            outbound,
            metrics: Arc::new(Metrics::new()),
            url: URL.into(),
        });
        if first {
            put_cluster(&app, CLUSTER, "c1", |spec| spec.external_id = EXTERNAL_ID.into()).await;
            put_cluster(&app, OTHER_CLUSTER, "c2", |spec| spec.schedulable = false).await;
        }
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let alone = !matches!(place.fresh.place, stores::Place::Database(_));
        let domain = FleetDomain::new(config, dir.path().into(), alone);
        domain.kinds().into_iter().for_each(|kind| app.kinds().add(kind).expect("a new kind"));
        let started = domain.start_fleet(&app, &tasks, &stop).await;
        let (fleet, running) = started.expect("the fleet starts");
        let http = http::Config { rate_per_s: 0, ..http::Config::default() };
        let router = http::router(app.clone(), running.routes, &http).expect("a router");
        let metrics = app.metrics.clone();
        let driver = Driver {
            name: ambient.id(),
            store: store.clone(),
            ambient,
            workers: running.workers,
            config: Default::default(),
            observe: Arc::new(move |kind, end, took, late| {
                metrics.attempt(kind, end.label(), took.as_secs_f64());
                metrics.wake(late.as_secs_f64());
            }),
        };
        let rest = stop.child_token();
        let workers = (rest.clone(), tasks.spawn(driver.run(rest)));
        let tokens = callers::tokens(dir.path());
        let _stop = stop.drop_guard();
        Stage { app, fleet, store, router, domain, tokens, workers, place, _stop }
    }

    /// The routes of the fleet once more.
    pub fn routes(&self) -> kernel::http::Routes {
        fleet::domain::routes(&self.fleet)
    }

    /// Serves on a socket of its own until it is stopped; returns where, how to stop it, and what
    /// ends when it has.
    pub async fn serve(&self) -> (String, CancellationToken, JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let config = http::Config { drain_s: 20, ..http::Config::default() };
        let (app, routes) = (self.app.clone(), self.routes());
        let served = http::serve(app, routes, listener, config, stop.clone());
        let ended = tokio::spawn(async move { served.await.expect("it is served") });
        (url, stop, ended)
    }

    /// From here on, instances stay as they are until an agent or a caller does something.
    pub async fn stop_workers(&mut self) {
        self.workers.0.cancel();
        let ended = &mut self.workers.1;
        ended.await.expect("the workers end");
    }

    /// The token of a caller; anything but a name is a token itself.
    pub fn token<'a>(&'a self, who: &'a str) -> &'a str {
        self.tokens.get(who).map_or(who, String::as_str)
    }

    /// A request of someone; of nobody if `who` is empty.
    pub fn request(&self, who: &str, method: &str, path: &str) -> Builder {
        let request = Request::builder().method(method).uri(path);
        match who {
            "" => request,
            who => request.header("authorization", format!("Bearer {}", self.token(who))),
        }
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.open(request).await).await
    }

    /// The same domain behind other settings of the server.
    pub fn service(&self, config: &http::Config) -> HttpService {
        http::router(self.app.clone(), self.routes(), config).expect("a service")
    }

    /// Whose body is still to be read.
    pub async fn open(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.expect("infallible")
    }

    pub async fn get(&self, who: &str, path: &str) -> Answer {
        self.send(self.request(who, "GET", path).body(Body::empty()).unwrap()).await
    }

    pub async fn call(&self, who: &str, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = self.request(who, method, path).header("content-type", "application/json");
        self.send(request.body(body).unwrap()).await
    }

    /// Creates an instance, and returns its id.
    pub async fn create(&self, api: Api, who: &str, name: &str) -> String {
        self.create_with(api, who, json!({ "name": name })).await
    }

    pub async fn create_with(&self, api: Api, who: &str, body: Value) -> String {
        let created = self.call(who, "POST", &api.path("?async=true"), &body).await;
        assert_eq!(created.status, 202, "{}", created.text);
        created.body["id"].as_str().expect("an id").to_owned()
    }

    /// Creates an instance that the simulated agent makes ready.
    pub async fn create_ready(&self, api: Api, who: &str, name: &str) -> String {
        let id = self.create(api, who, name).await;
        self.agent(api).make_ready(&id).await;
        id
    }

    /// An instance as an admin sees it; null when it is gone.
    pub async fn seen(&self, api: Api, id: &str) -> Value {
        let key = kernel::Key::new(api.name, id);
        let object = self.store.object(&key).await.unwrap();
        object.filter(|object| object.deleted_at.is_none()).map_or(Value::Null, |object| {
            json!({ "status": object.phase, "owner": object.owner, "revision": object.revision })
        })
    }

    pub async fn status(&self, api: Api, id: &str) -> String {
        self.seen(api, id).await["status"].as_str().unwrap_or("gone").to_owned()
    }

    /// The agent of the cluster that takes instances.
    pub fn agent(&self, api: Api) -> Agent<'_> {
        Agent::new(self, api, "agent", CLUSTER)
    }
}

/// Writes a cluster that is there and whose agent has reported.
pub async fn put_cluster(app: &App, id: &str, name: &str, change: impl FnOnce(&mut Spec)) {
    let now = app.ambient.now();
    let mut spec = Spec {
        provider: Provider::Agent,
        cloud_provider: "aws".into(),
        region: "us-east-1".into(),
        multi_az: true,
        schedulable: true,
        dns_name: format!("apps.{name}.example.com"),
        ..Spec::default()
    };
    change(&mut spec);
    let operator = |version: &str, components: &[(&str, &[&str])]| {
        let all = |versions: &[&str]| versions.iter().map(|v| (*v).to_owned()).collect();
        let components = components.iter().map(|(name, of)| ((*name).to_owned(), all(of)));
        vec![Operator { version: version.into(), ready: true, components: components.collect() }]
    };
    let strimzi = operator(
        "strimzi-cluster-operator.v0.26.0-0",
        &[("kafka", &["2.8.1", "2.8.2"]), ("kafkaIbp", &["2.7", "2.8"])],
    );
    let dinosaur = operator("dinosaur-operator.v0.1.0-0", &[("dinosaur", &["1.0.0", "1.1.0"])]);
    let room = |max: i64| Capacity { max, remaining: max - 1 };
    let seen = Status {
        since: now,
        agent_seen_at: Some(now),
        capacity: [("standard", 1_000_000), ("developer", 100_000), ("eval", 100_000)]
            .map(|(of, max)| (of.to_owned(), room(max)))
            .into(),
        operators: [("kafka".to_owned(), strimzi), ("dinosaur".to_owned(), dinosaur)].into(),
        ..Status::default()
    };
    let mut object = Object::new(cluster::key(id), "", "", name, Phase::Ready.label(), now);
    object.spec = Json::encode(&spec);
    object.status = Json::encode(&seen);
    let change = Change { write: Some(Write::create(object, "registered")), ..Change::default() };
    kernel::store::commit(app.store.as_ref(), change, now).await.expect("a cluster");
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// Null if it is not JSON.
    pub body: Value,
}

impl Answer {
    pub async fn read(response: Response) -> Answer {
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 64 << 20).await.expect("the body");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: parts.status.as_u16(), headers: parts.headers, text, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The number of the error; 0 if it is none.
    pub fn code(&self) -> u32 {
        let code = self.body["code"].as_str().filter(|_| self.status >= 400).unwrap_or_default();
        code.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    pub fn items(&self) -> &[Value] {
        self.body["items"].as_array().map(Vec::as_slice).unwrap_or_default()
    }
}

/// Waits for a condition; fails the test if it does not come about.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
