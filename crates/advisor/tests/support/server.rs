//! Servers that share a store and work on bulk jobs, and what a test asks of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use advisor::config::{Config, Datasource};
use advisor::model::experiment::Experiment;
use advisor::model::job::{BulkJob, JobPhase, job_key, shard_key};
use advisor::model::tenant::Tenant;
use advisor::{AdvisorDomain, store};
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use kernel::blob::Blobs;
use kernel::command::{Envelope, Origin, Sender};
use kernel::driver::Driver;
use kernel::http::{self, HttpService};
use kernel::identity::builtin::{Kind, Signer};
use kernel::identity::{self, Identity, Principal};
use kernel::log::{Event, EventFilter};
use kernel::outbound::{self, Outbound};
use kernel::telemetry::Metrics;
use kernel::typed::Typed;
use kernel::{Ambient, App, AppState, Domain as _, Json, Key, Object, ObjectQuery, Result, Store};
use serde_json::{Value, json};
use testkit::stores::Fresh;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

const URL: &str = "http://localhost";
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until it holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The settings of a server whose data sources are at these addresses.
pub fn config(sources: &[(&str, &str)]) -> Config {
    let source = |(name, url): &(&str, &str)| {
        let datasource = Datasource { query_timeout_s: 2, ..Datasource::at(url) };
        ((*name).to_owned(), datasource)
    };
    let datasources = sources.iter().map(source).collect();
    // A second and a half.
    Config { datasources, source_retries_max: 3, ..Config::default() }
}

pub fn caller(org: &str) -> Principal {
    let roles = ["user".to_owned()].into();
    Principal { subject: "alice".into(), org: org.into(), roles, ..Principal::default() }
}

/// The members of an organisation.
pub fn of(org: &str) -> Tenant<'_> {
    Tenant { org, owner: "" }
}

/// One server. Dropping it is its sudden end: nothing that it does goes on.
pub struct Server {
    pub app: App,
    service: HttpService,
    signer: Signer,
    driver: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

/// What the server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// Null if it is not JSON.
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Server {
    pub async fn start(fresh: &Fresh, config: &Config) -> Server {
        Server::on(fresh.store.clone(), config).await
    }

    pub async fn on(store: Arc<dyn Store>, config: &Config) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let app = app(store, dir.path());
        let domain = AdvisorDomain { config: config.clone() };
        domain.kinds().into_iter().for_each(|kind| app.kinds().add(kind).unwrap());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let running = domain.start(&app, &tasks, &stop).await.unwrap();
        let http =
            http::Config { rate_per_s: 0, cors_origins: vec!["*".into()], ..Default::default() };
        let service = http::router(app.clone(), running.routes, &http).unwrap();
        let signer = Signer::open(&Default::default(), dir.path(), URL, app.ambient.clone());
        let signer = signer.unwrap();
        let driver = Driver {
            name: app.ambient.id(),
            store: app.store.clone(),
            ambient: app.ambient.clone(),
            workers: running.workers,
            config: kernel::driver::Config { lease_s: 1, ..Default::default() },
            observe: Arc::new(|_, _, _, _| {}),
        };
        let driver = tokio::spawn(async move { driver.run(stop).await });
        Server { app, service, signer, driver, _dir: dir }
    }

    /// The header of alice's requests.
    pub fn authorization(&self) -> String {
        self.authorization_of("acme")
    }

    /// The header of requests of a member of this organisation.
    pub fn authorization_of(&self, org: &str) -> String {
        self.bearer(&caller(org))
    }

    /// The header of an admin's requests.
    pub fn admin(&self) -> String {
        self.bearer(&Principal { roles: ["admin-full".to_owned()].into(), ..caller("") })
    }

    /// The header of a person without an organisation.
    pub fn person(&self, subject: &str) -> String {
        self.bearer(&Principal { subject: subject.into(), ..caller("") })
    }

    fn bearer(&self, who: &Principal) -> String {
        let hour = Duration::from_secs(3600);
        format!("Bearer {}", self.signer.issue(who, "tests", hour, Kind::Access).unwrap())
    }

    /// A request of alice's.
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        self.call_as(&self.authorization(), method, path, body).await
    }

    /// A request with this authorization.
    pub async fn call_as(&self, who: &str, method: &str, path: &str, body: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).header("authorization", who);
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "").await
    }

    /// The response to a request, of which the body was not read yet.
    pub async fn response(&self, request: Request<Body>) -> Response {
        self.service.clone().oneshot(request).await.unwrap()
    }

    /// A request as it is.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.response(request).await.into_parts();
        let bytes = axum::body::to_bytes(body, 256 << 20).await.unwrap();
        let text = String::from_utf8(bytes.into()).unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: parts.status.as_u16(), headers: parts.headers, text, body }
    }

    pub async fn command(
        &self,
        org: &str,
        name: &str,
        key: Option<Key>,
        body: Value,
    ) -> Result<Json> {
        let (principal, origin) = (caller(org), Origin::Internal);
        let sender =
            Sender { principal: &principal, origin: &origin, request_id: "test", trace: None };
        let envelope = Envelope::new(name, key, Json::encode(&body));
        let done = self.app.commands().execute(&self.app, sender, &envelope).await?;
        Ok(done.reply.body)
    }

    /// Creates a job; returns its id.
    pub async fn create(&self, body: Value) -> Result<String> {
        let reply = self.command("acme", "bulk-job.create", None, body).await?;
        let reply: Value = reply.parse()?;
        Ok(reply["job_id"].as_str().unwrap().to_owned())
    }

    pub async fn cancel(&self, id: &str) {
        let done = self.command("acme", "bulk-job.cancel", Some(job_key(id)), json!({})).await;
        done.unwrap();
    }

    pub async fn delete(&self, id: &str) {
        let done = self.command("acme", "bulk-job.delete", Some(job_key(id)), json!({})).await;
        done.unwrap();
    }

    pub async fn job(&self, id: &str) -> Typed<BulkJob> {
        store::job(self.app.store.as_ref(), id).await.unwrap().unwrap().1
    }

    /// The job, once it has ended.
    pub async fn ended(&self, id: &str) -> Typed<BulkJob> {
        until("the job ends", async || self.job(id).await.phase.is_final()).await;
        self.job(id).await
    }

    pub async fn completed(&self, id: &str) -> Typed<BulkJob> {
        let job = self.ended(id).await;
        assert_eq!(job.phase, JobPhase::Completed, "{:?}", job.status);
        job
    }

    /// All experiments, by name.
    pub async fn experiments(&self) -> BTreeMap<String, Typed<Experiment>> {
        let experiments = self.objects("experiment").await;
        let typed = experiments.iter().map(|object| Typed::from_object(object).unwrap());
        typed.map(|one: Typed<Experiment>| (one.name.clone(), one)).collect()
    }

    pub async fn objects(&self, kind: &str) -> Vec<Object> {
        let mut query =
            ObjectQuery { kind: Some(kind.into()), limit: 500, ..ObjectQuery::default() };
        let mut all = Vec::new();
        loop {
            let page = self.app.store.find(&query).await.unwrap();
            all.extend(page.objects);
            query.after = page.next;
            if query.after.is_none() {
                return all;
            }
        }
    }

    /// The names of the experiments in the results of a job, in the order of their lines.
    pub async fn results(&self, job: &Typed<BulkJob>) -> Vec<String> {
        let mut names = Vec::new();
        for number in 0..job.status.shards as usize {
            let key = shard_key(&job.id, number);
            let results = store::results(&self.app, &key).await.unwrap().unwrap();
            for line in 0..results.len() {
                names.push(results.line(line).unwrap().unwrap().experiment.name);
            }
        }
        names
    }

    /// The types of the events of a kind, in order, without what all of them begin with.
    pub async fn events(&self, kind: &str) -> Vec<(String, Event)> {
        let prefix = format!("mainstay.{kind}.");
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let filter = EventFilter::default();
            let page = self.app.store.events(after, &filter, 1000).await.unwrap();
            let Some(last) = page.last() else { return all };
            after = last.seq;
            let named = page
                .into_iter()
                .filter_map(|event| Some((event.kind.strip_prefix(&prefix)?.to_owned(), event)));
            all.extend(named);
        }
    }
}

fn app(store: Arc<dyn Store>, dir: &Path) -> App {
    outbound::install_tls();
    let ambient = Ambient::system();
    let observe: outbound::Observe = Arc::new(|_| {});
    let outbound = Outbound::new(outbound::Config::default(), ambient.clone(), observe).unwrap();
    let trusted = identity::Config::default();
    let identity = Identity::start(trusted, dir, URL, ambient.clone(), &outbound).unwrap();
    App::new(AppState {
        store,
        blobs: Blobs::new(&[7; 32], ambient.clone()),
        ambient,
        identity,
        outbound,
        metrics: Arc::new(Metrics::new()),
        url: URL.into(),
    })
}
