//! A whole server on a real port: the fleet's domain on SQLite, with its workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fleet::model::cluster::{self, Cluster, Phase};
use fleet::ports::sso::Secrets;
use fleet::{Config, FleetDomain};
use kernel::driver::Driver;
use kernel::identity::builtin::{Kind, Signer};
use kernel::identity::{self, Identity, Principal};
use kernel::outbound::{self, Outbound};
use kernel::store::sqlite::Sqlite;
use kernel::telemetry::Metrics;
use kernel::{Ambient, App, AppState, Domain as _, Key, Store, http};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub const KAFKAS: &str = "/api/kafkas_mgmt/v1/kafkas";

pub struct Stage {
    pub url: String,
    pub store: Arc<dyn Store>,
    pub dir: PathBuf,
    http: reqwest::Client,
    alice: String,
    admin: String,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The client id and secret of a cluster's agent.
pub fn agent_secret(dir: &Path, cluster: &str) -> (String, String) {
    let id = format!("kas-fleetshard-agent-{cluster}");
    let secrets = Secrets::open(&dir.join("fleet-key"), &Ambient::system()).unwrap();
    let secret = secrets.derive(&id, 0);
    (id, secret)
}

/// A new store.
pub fn store(dir: &Path) -> Arc<dyn Store> {
    Arc::new(
        Sqlite::open(
            &dir.join("mainstay.db"),
            kernel::Ambient::system(),
            kernel::store::uncounted(),
        )
        .unwrap(),
    )
}

impl Stage {
    pub async fn start(dir: &Path, change: impl FnOnce(&mut Config)) -> Stage {
        Stage::on(store(dir), dir, change).await
    }

    /// Starts on an existing store.
    pub async fn on(store: Arc<dyn Store>, dir: &Path, change: impl FnOnce(&mut Config)) -> Stage {
        outbound::install_tls();
        let ambient = Ambient::system();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let ignored: outbound::Observe = Arc::new(|_| {});
        let outbound =
            Outbound::new(outbound::Config::default(), ambient.clone(), ignored).unwrap();
        let trusted = identity::Config::default();
        let identity =
            Identity::start(trusted.clone(), dir, &url, ambient.clone(), &outbound).unwrap();
        let app = App::new(AppState {
            store: store.clone(),
            ambient: ambient.clone(),
            blobs: kernel::blob::Blobs::new(&[7; 32], ambient.clone()),
            identity,
            outbound,
            metrics: Arc::new(Metrics::new()),
            url: url.clone(),
        });
        let mut config = Config::default();
        config.local.enabled = Some(false);
        change(&mut config);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let mut domain = FleetDomain::new(config, dir.into(), true);
        domain.leash_argv = Some(crate::terraform::leash_argv());
        let running = domain.start(&app, &tasks, &stop).await.expect("the fleet starts");
        let driver = Driver {
            name: ambient.id(),
            store: store.clone(),
            ambient: ambient.clone(),
            workers: running.workers,
            config: Default::default(),
            observe: Arc::new(|_, _, _, _| {}),
        };
        tasks.spawn(driver.run(stop.clone()));
        let routes = identity::routes().merge(running.routes);
        let (stopped, config) =
            (stop.clone(), http::Config { rate_per_s: 0, ..Default::default() });
        tasks.spawn(
            async move { http::serve(app, routes, listener, config, stopped).await.unwrap() },
        );
        let signer = Signer::open(&trusted, dir, &url, ambient.clone()).unwrap();
        let token = |who: &Principal| {
            signer.issue(who, "tests", Duration::from_secs(3_600), Kind::Access).unwrap()
        };
        let alice = Principal { subject: "alice".into(), org: "acme".into(), ..Default::default() };
        let roles = ["admin-full".to_owned()].into();
        let admin = Principal { subject: "root".into(), roles, ..Default::default() };
        let (alice, admin) = (token(&alice), token(&admin));
        let http = reqwest::Client::new();
        Stage { url, store, dir: dir.into(), http, alice, admin, stop, tasks }
    }

    /// Shuts down. Returns the store.
    pub async fn end(self) -> Arc<dyn Store> {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.store.clone()
    }

    pub async fn call(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let method = method.parse().unwrap();
        let mut request =
            self.http.request(method, format!("{}{path}", self.url)).bearer_auth(token);
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default())
    }

    /// A token for a cluster's agent, by its secret.
    pub async fn agent_token(&self, cluster: &str) -> String {
        let (id, secret) = agent_secret(&self.dir, cluster);
        let form =
            [("grant_type", "client_credentials"), ("client_id", &id), ("client_secret", &secret)];
        let url = format!("{}/oauth/token", self.url);
        let response: Value =
            self.http.post(url).form(&form).send().await.unwrap().json().await.unwrap();
        response["access_token"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
    }

    pub async fn create(&self, name: &str) -> String {
        self.create_at(KAFKAS, json!({ "name": name })).await
    }

    pub async fn create_at(&self, path: &str, body: Value) -> String {
        let path = format!("{path}?async=true");
        let (status, body) = self.call(&self.alice, "POST", &path, &body).await;
        assert_eq!(status, 202, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    /// Suspends or resumes an instance, as an admin.
    pub async fn suspend(&self, id: &str, suspended: bool) {
        let path = format!("/api/kafkas_mgmt/v1/admin/kafkas/{id}");
        let body = json!({ "suspended": suspended });
        let (status, body) = self.call(&self.admin, "PATCH", &path, &body).await;
        assert_eq!(status, 200, "{body}");
    }

    pub async fn delete(&self, id: &str) {
        let path = format!("{KAFKAS}/{id}?async=true");
        let (status, body) = self.call(&self.alice, "DELETE", &path, &Value::Null).await;
        assert_eq!(status, 202, "{body}");
    }

    /// The phase and status of a Kafka; the phase is `gone` once it is deleted.
    pub async fn kafka(&self, id: &str) -> (String, fleet::model::instance::Status) {
        let object = self.store.object(&Key::new("kafka", id)).await.unwrap().unwrap();
        let phase = if object.deleted_at.is_some() { "gone".into() } else { object.phase.clone() };
        (phase, object.status.parse().unwrap())
    }

    pub async fn until_kafka(&self, id: &str, status: &str) {
        let what = format!("kafka {id} is {status}");
        eventually(&what, async || self.kafka(id).await.0 == status).await;
    }

    pub async fn cluster(&self, id: &str) -> Option<Cluster> {
        let object = self.store.object(&cluster::key(id)).await.unwrap()?;
        object.deleted_at.is_none().then(|| Cluster::from_object(&object).unwrap())
    }

    pub async fn until_cluster(&self, id: &str, status: Phase) -> Cluster {
        let what = format!("cluster {id} is {}", status.label());
        eventually(&what, async || self.cluster(id).await.is_some_and(|c| c.phase == status)).await;
        self.cluster(id).await.unwrap()
    }

    pub async fn until_gone(&self, id: &str) {
        eventually(&format!("cluster {id} is gone"), async || self.cluster(id).await.is_none())
            .await;
    }

    /// Requests the deletion of a cluster, as an admin.
    pub async fn delete_cluster(&self, id: &str, force: bool) {
        let path = format!("/api/v1/fleet/clusters/{id}?force={force}");
        let (status, body) = self.call(&self.admin, "DELETE", &path, &Value::Null).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Reports a cluster as its agent does, with a version of Kafka.
    pub async fn agent_reports(&self, cluster: &str, ready: &str) {
        let token = self.agent_token(cluster).await;
        let path = format!("/api/kafkas_mgmt/v1/agent-clusters/{cluster}/status");
        let body = json!({
            "conditions": [{ "type": "Ready", "status": ready }],
            "capacity": { "standard": { "maxUnits": 5, "remainingUnits": 5 },
                          "developer": { "maxUnits": 5, "remainingUnits": 5 } },
            "strimzi": [{ "ready": true, "version": "s1", "kafkaVersions": ["3.9.0"], "kafkaIbpVersions": ["3.9"] }],
        });
        let (status, body) = self.call(&token, "PUT", &path, &body).await;
        assert_eq!(status, 204, "{body}");
    }

    /// Acts as an agent of the plain contract: lists all instances, and reports all as done.
    pub async fn agent_round(&self, cluster: &str) {
        let token = self.agent_token(cluster).await;
        let base = format!("/api/kafkas_mgmt/v1/agent-clusters/{cluster}/kafkas");
        let (status, list) = self.call(&token, "GET", &base, &Value::Null).await;
        assert_eq!((status, &list["kind"]), (200, &json!("ManagedKafkaList")), "{list}");
        let reports = list["items"].as_array().unwrap().iter().map(|item| {
            let deleted = item["spec"]["deleted"] == true;
            let (status, reason) = if deleted { ("False", "Deleted") } else { ("True", "") };
            let ready = json!({ "type": "Ready", "status": status, "reason": reason });
            (item["id"].as_str().unwrap().to_owned(), json!({ "conditions": [ready] }))
        });
        let reports: Value = reports.collect::<serde_json::Map<_, _>>().into();
        let (status, body) = self.call(&token, "PUT", &format!("{base}/status"), &reports).await;
        assert_eq!((status, body), (200, Value::Null));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Writes a clusters file.
pub fn clusters_file(dir: &Path, text: &str) -> Option<PathBuf> {
    let file = dir.join("clusters.yaml");
    std::fs::write(&file, text).unwrap();
    Some(file)
}

/// Waits for a condition; fails the test if it does not hold in time.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
