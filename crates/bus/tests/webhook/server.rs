//! A server in this process: the whole bus, its API, and events that a test makes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::config::Config;
use bus::{BusDomain, store};
use kernel::blob::Blobs;
use kernel::change::{Cause, EventDraft, Write};
use kernel::identity::builtin::Kind;
use kernel::identity::{self, Identity, Principal};
use kernel::kind::{KindInfo, Part, Presenter};
use kernel::outbound::{self, Lookup, Outbound};
use kernel::store::commit;
use kernel::telemetry::Metrics;
use kernel::{Ambient, App, AppState, Change, Domain as _, Json, Key, Object, Store, http};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::Memory;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until it holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// What a server is started with.
#[derive(Clone)]
pub struct Setup {
    pub store: Arc<dyn Store>,
    pub bus: Config,
    pub allow: Vec<String>,
    pub lookup: Option<Lookup>,
}

impl Default for Setup {
    /// Retries come soon, and receivers may be on loopback.
    fn default() -> Setup {
        let mut bus = Config::default();
        (bus.webhooks.backoff_ms, bus.webhooks.backoff_max_ms) = (1, 20);
        let allow = vec!["127.0.0.1".into()];
        Setup { store: Arc::new(Memory::default()), bus, allow, lookup: None }
    }
}

pub struct Server {
    pub app: App,
    url: String,
    tokens: HashMap<&'static str, String>,
    http: reqwest::Client,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A webhook as its creator knows it.
#[derive(Debug, Clone)]
pub struct Webhook {
    pub id: String,
    pub secret: String,
}

/// Shows all but the spec.
struct WithoutSpec;

impl Part for WithoutSpec {
    fn allows(&self, _: &Principal) -> bool {
        true
    }

    fn of(&self, object: &Object) -> Option<Object> {
        Some(Object { spec: Json::default(), ..object.clone() })
    }
}

/// Alice and bob of acme, carol of globex, and an admin of acme.
fn tokens(identity: &Identity) -> HashMap<&'static str, String> {
    let people = [
        ("alice", "acme", ""),
        ("bob", "acme", ""),
        ("carol", "globex", ""),
        ("admin", "acme", "admin-full"),
    ];
    let signer = identity.builtin().unwrap().signer();
    let token = |(subject, org, role): (&'static str, &str, &str)| {
        let roles: BTreeSet<String> =
            [role].iter().filter(|role| !role.is_empty()).map(|role| (*role).to_owned()).collect();
        let who =
            Principal { subject: subject.into(), org: org.into(), roles, ..Principal::default() };
        let hour = Duration::from_secs(3600);
        (subject, signer.issue(&who, "tests", hour, Kind::Access).unwrap())
    };
    people.map(token).into()
}

impl Setup {
    pub async fn start(&self) -> Server {
        outbound::install_tls();
        let ambient = Ambient::system();
        let config =
            outbound::Config { allow_targets: self.allow.clone(), ..outbound::Config::default() };
        let observe: outbound::Observe = Arc::new(|_| {});
        let outbound = match &self.lookup {
            Some(lookup) => Outbound::with_lookup(config, ambient.clone(), observe, lookup.clone()),
            None => Outbound::new(config, ambient.clone(), observe),
        };
        let outbound = outbound.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let issuer = "http://localhost";
        let identity = identity::Config::default();
        let identity =
            Identity::start(identity, dir.path(), issuer, ambient.clone(), &outbound).unwrap();
        let tokens = tokens(&identity);
        let app = App::new(AppState {
            store: self.store.clone(),
            blobs: Blobs::new(&[7; 32], ambient.clone()),
            ambient,
            identity,
            outbound,
            metrics: Arc::new(Metrics::new()),
            url: issuer.into(),
        });
        let domain = BusDomain { config: self.bus.clone(), embedded: true, commands_days: 7 };
        let partly = Presenter::Part(Arc::new(WithoutSpec));
        let kinds =
            [("widget", Presenter::Whole), ("secret", Presenter::Hidden), ("partly", partly)];
        let kinds = kinds.map(|(name, present)| KindInfo::new(name, &format!("{name}s"), present));
        for kind in domain.kinds().into_iter().chain(kinds) {
            app.kinds().add(kind).unwrap();
        }
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let running = domain.start(&app, &tasks, &stop).await.unwrap();
        let listener = http::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let config = http::Config { rate_per_s: 0, ..http::Config::default() };
        // The API outlives the pumps, so that a test can write while nothing is sent.
        let (of_app, never) = (app.clone(), CancellationToken::new());
        tokio::spawn(http::serve(of_app, running.routes, listener, config, never));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Server { app, url, tokens, http, stop, tasks }
    }
}

impl Server {
    pub fn store(&self) -> &dyn Store {
        self.app.store.as_ref()
    }

    /// Stops the pumps. The API stays.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub async fn call(&self, who: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = request.bearer_auth(&self.tokens[who]);
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or_default())
    }

    pub async fn get(&self, who: &str, path: &str) -> (u16, Value) {
        self.call(who, Method::GET, path, Value::Null).await
    }

    pub async fn post(&self, who: &str, path: &str, body: Value) -> (u16, Value) {
        self.call(who, Method::POST, path, body).await
    }

    /// Creates a webhook for widgets; `more` has other fields.
    pub async fn webhook(&self, who: &str, name: &str, url: &str, more: Value) -> Webhook {
        let mut body = json!({"name": name, "url": url, "filter": {"kinds": ["widget"]}});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let (status, body) = self.post(who, "/api/v1/sinks", body).await;
        assert_eq!(status, 201, "{body}");
        let id = body["key"].as_str().unwrap().strip_prefix("sink/").unwrap().to_owned();
        Webhook { id, secret: body["secret"].as_str().unwrap().to_owned() }
    }

    pub async fn sink(&self, id: &str) -> Value {
        let (status, body) = self.get("admin", &format!("/api/v1/sinks/{id}")).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    pub async fn until_phase(&self, id: &str, phase: &str) -> Value {
        until(phase, async || self.sink(id).await["phase"] == phase).await;
        self.sink(id).await
    }

    pub async fn resume(&self, id: &str) {
        let (status, body) =
            self.post("alice", &format!("/api/v1/sinks/{id}/resume"), json!({})).await;
        assert_eq!(status, 202, "{body}");
    }

    /// Whether nothing is kept for the sink any more.
    pub async fn is_retired(&self, id: &str) -> bool {
        let cursor = self.store().cursor(&bus::model::cursor_name(id)).await.unwrap();
        cursor.is_some_and(|cursor| cursor.seq == store::RETIRED)
    }

    async fn commit(&self, change: Change) -> i64 {
        commit(self.store(), change, self.app.ambient.now()).await.unwrap();
        self.store().newest_event().await.unwrap()
    }

    /// An event of a widget. Returns its number.
    pub async fn happen(&self, org: &str, widget: &str) -> i64 {
        self.happen_because(org, widget, Cause::default()).await
    }

    pub async fn happen_because(&self, org: &str, widget: &str, cause: Cause) -> i64 {
        let event = EventDraft {
            kind: "mainstay.widget.ready".into(),
            subject: Key::new("widget", widget),
            org: org.into(),
            data: Some(Json::encode(&json!({ "widget": widget }))),
        };
        let (event, cause) = (Some(event), Some(cause));
        self.commit(Change { event, cause, ..Change::default() }).await
    }

    /// Creates an object whose spec has a password. Returns the number of its event.
    pub async fn create(&self, kind: &str, id: &str, org: &str) -> i64 {
        let now = self.app.ambient.now();
        let mut object = Object::new(Key::new(kind, id), org, "alice", id, "ready", now);
        object.spec = Json::encode(&json!({ "password": "hunter2" }));
        let write = Some(Write::create(object, "created"));
        self.commit(Change { write, ..Change::default() }).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
