//! One process: the fleet, its index, its API and its driver over an unreliable network; it crashes and
//! restarts from the store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet::config::Timeouts;
use fleet::model::catalogue::Catalogue;
use fleet::model::cluster::{self, Operator, Phase, Provider, Spec, Status};
use fleet::ports::sso::Secrets;
use fleet::ports::terraform::Terraform;
use fleet::work::cluster::ClusterWorker;
use fleet::work::instance::InstanceWorker;
use fleet::work::recheck::RecheckWorker;
use fleet::{Config, Fleet, Ports};
use kernel::change::Write;
use kernel::driver::Driver;
use kernel::event_tail::EventTail;
use kernel::http::{self, HttpService};
use kernel::identity::{self, Identity};
use kernel::outbound::{self, Outbound};
use kernel::secret::SecretValue;
use kernel::telemetry::Metrics;
use kernel::{Ambient, App, AppState, Change, Json, Object, Store as _};
use parking_lot::Mutex;
use testkit::sim::World;
use testkit::sim::flaky::Flaky;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::outside::Connection;
use super::{CLUSTER_LIMIT, CLUSTERS, ORGS, QUOTA, Sim};

pub const URL: &str = "http://mainstay.sim";

/// The running processes.
#[derive(Default)]
pub struct Replicas(Mutex<Vec<(usize, Running)>>);

#[derive(Clone)]
pub struct Running {
    pub fleet: Arc<Fleet>,
    pub router: HttpService,
}

impl Replicas {
    /// One of them, if any runs.
    pub fn any(&self, world: &World) -> Option<Running> {
        let running = self.0.lock();
        (!running.is_empty()).then(|| running[world.pick(running.len())].1.clone())
    }

    fn put(&self, number: usize, running: Running) {
        self.0.lock().push((number, running));
    }

    fn remove(&self, number: usize) {
        self.0.lock().retain(|(n, _)| *n != number);
    }
}

pub async fn register_clusters(world: &World) {
    let now = world.now();
    for id in CLUSTERS {
        let mut object = Object::new(cluster::key(id), "", "sim", id, Phase::Ready.label(), now);
        object.spec = Json::encode(&Spec {
            provider: Provider::Agent,
            multi_az: true,
            schedulable: true,
            limit: Some(CLUSTER_LIMIT),
            dns_name: format!("apps.{id}"),
            ..Spec::default()
        });
        let versions = |text: &str| vec![text.to_owned()];
        let operator = Operator {
            version: "1".into(),
            ready: true,
            components: [("kafka".into(), versions("3.0")), ("kafkaIbp".into(), versions("3.0"))]
                .into(),
        };
        let operators = [("kafka".to_owned(), vec![operator])].into();
        object.status = Json::encode(&Status { since: now, operators, ..Status::default() });
        let change = Change { write: Some(Write::create(object, "ready")), ..Change::default() };
        world.memory.commit_all(vec![change], now).await.unwrap();
    }
}

fn config() -> Config {
    Config { timeouts: Timeouts { recheck_s: 900, ..Timeouts::default() }, ..Config::default() }
}

/// Everyone of the organisations has this quota.
fn catalogue(config: &Config) -> Catalogue {
    let mut catalogue = config.catalogue_files().read().unwrap();
    let entry = |org: &str| {
        format!("  - {{ id: {org}, any_user: true, max_allowed_instances: {QUOTA} }}\n")
    };
    let text: String = ORGS.iter().map(|org| entry(org)).collect();
    catalogue.quota =
        serde_yaml_ng::from_str(&format!("registered_users_per_organisation:\n{text}")).unwrap();
    catalogue
}

/// Signs tokens as every replica would.
pub fn identity(ambient: &Ambient, outbound: &Outbound) -> Identity {
    let dir = key_dir();
    Identity::start(identity::Config::default(), dir, URL, ambient.clone(), outbound).unwrap()
}

/// One key for all seeds: it affects no outcome.
pub fn key_dir() -> &'static Path {
    static DIR: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    DIR.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

pub async fn run(sim: Arc<Sim>, number: usize, seed: u64) {
    let mut starts = 0;
    loop {
        starts += 1;
        let store = Arc::new(Flaky::new(sim.world.clone()));
        let clock = store.clone();
        let ambient = Ambient::seeded(move || clock.now(), seed.wrapping_add(starts));
        let mut process = JoinSet::new();
        process.spawn(process_life(sim.clone(), number, store.clone(), ambient));
        let uptime = sim.world.millis(500, 60_000);
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = tokio::time::sleep(uptime), if !sim.world.calm.is_cancelled() => {}
        }
        // Everything that the process was doing is lost at this point.
        drop(process);
        sim.replicas.remove(number);
        tokio::time::sleep(sim.world.millis(10, 5000)).await;
    }
}

async fn process_life(sim: Arc<Sim>, number: usize, store: Arc<Flaky>, ambient: Ambient) {
    let config = config();
    let connection = Arc::new(Connection { sim: sim.clone(), process: store.clone() });
    let ports = Ports {
        sso: connection.clone(),
        sso_is_external: true,
        dns: Some(connection),
        metrics: None,
        ams: None,
        observability_access_token: SecretValue::fixed("", "".into()),
    };
    let fleet = Arc::new(Fleet::new(
        config.clone(),
        catalogue(&config),
        (store.clone(), ambient.clone(), Default::default()),
        Secrets::from_key(vec![7; 32]),
        ports,
        Default::default(),
        URL.into(),
    ));
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let _guard = stop.clone().drop_guard();
    // A failing store is retried, as an operator would restart the server.
    let tail = EventTail::new(store.clone());
    while fleet::domain::follow(&fleet, &tail, &tasks, &stop).await.is_err() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let outbound =
        Outbound::new(outbound::Config::default(), ambient.clone(), Arc::new(|_| {})).unwrap();
    let dir = key_dir().join("terraform");
    let terraform = Terraform::new(config.terraform.clone(), dir, &outbound, Vec::new()).unwrap();
    let blobs = kernel::blob::Blobs::new(&[7; 32], ambient.clone());
    let runs = (terraform, blobs.clone());
    let clusters = ClusterWorker::start(&fleet, runs, &outbound, &tasks, &stop);
    let app = App::new(AppState {
        store: store.clone(),
        ambient: ambient.clone(),
        blobs,
        identity: identity(&ambient, &outbound),
        outbound,
        metrics: Arc::new(Metrics::new()),
        url: URL.into(),
    });
    let settings = http::Config { rate_per_s: 0, ..http::Config::default() };
    let router = http::router(app, fleet::domain::routes(&fleet), &settings).unwrap();
    sim.replicas.put(number, Running { fleet: fleet.clone(), router });
    let driver = Driver {
        name: ambient.id(),
        store,
        ambient,
        workers: vec![
            Arc::new(InstanceWorker(fleet.clone())),
            Arc::new(RecheckWorker(fleet)),
            Arc::new(clusters),
        ],
        config: kernel::driver::Config { slots: 4, slots_urgent: 1, ..Default::default() },
        observe: Arc::new(|_, _, _, _| {}),
    };
    driver.run(CancellationToken::new()).await;
}
