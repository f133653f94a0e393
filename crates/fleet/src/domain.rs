//! The fleet as a domain of the server: its shared state and its background tasks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::AuditDraft;
use kernel::driver::Workers;
use kernel::event_tail::EventTail;
use kernel::http::Routes;
use kernel::informer::{CacheUpdate, Informer};
use kernel::kind::{KindInfo, Kinds, Presenter};
use kernel::leash::Leash;
use kernel::secret::SecretValue;
use kernel::{Ambient, App, Change, Domain, Error, Key, Object, Result, Running, Store, Timestamp};
use parking_lot::RwLock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::client_source::FleetClientSource;
use crate::api::compat::{keycloak, ocm};
use crate::api::fleet;
use crate::api::kind_api::KindApis;
use crate::api::present::FleetKinds;
use crate::api::wire::rendered::Rendered;
use crate::commands::source::FleetCommands;
use crate::commands::{catalogue_reload, declared_clusters};
use crate::config::{Config, QuotaType};
use crate::dataplane::local::agent;
use crate::decide::placement::{PlacementVerdict, rank_clusters};
use crate::health;
use crate::metrics::{Counts, Scrape};
use crate::model::catalogue::Catalogue;
use crate::model::cluster::Cluster;
use crate::model::instance::Instance;
use crate::model::kind::Kind;
use crate::model::sso::canary_client_id;
use crate::model::template_scope::{AgentSecrets, InstanceScope};
use crate::model::{account, catalogue_load, cluster, recheck};
use crate::ports::ams::{self, Ams};
use crate::ports::dns::{Dns, Route53};
use crate::ports::prometheus::{Metrics, Prometheus};
use crate::ports::sso::{BuiltIn, Keycloak, Secrets, Sso, agent_client};
use crate::ports::terraform::Terraform;
use crate::store::agent_liveness::AgentLiveness;
use crate::store::index::Index;
use crate::store::rechecks;
use crate::work::account::AccountWorker;
use crate::work::cluster::ClusterWorker;
use crate::work::instance::InstanceWorker;
use crate::work::recheck::RecheckWorker;

/// The shared state of the domain: its catalogue, its index, and its clients of other systems.
pub struct Fleet {
    pub config: Config,
    catalogue: RwLock<Arc<Catalogue>>,
    catalogue_version: AtomicU64,
    catalogue_changes: watch::Sender<()>,
    pub index: Index,
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    /// The kinds of all domains: a file may not take their names.
    pub kinds: Kinds,
    pub secrets: Secrets,
    pub ports: Ports,
    pub tls_cert: String,
    pub tls_key: String,
    /// The URL at which others reach this server.
    pub url: String,
    pub agent_liveness: AgentLiveness,
    pub(crate) counts: Counts,
    pub(crate) rendered: Rendered,
    /// Identifies this run of the process: another run may render the same object differently.
    pub(crate) edition: String,
    /// The name of this process among those that share the store.
    pub(crate) replica: String,
}

/// Clients of the systems that a fleet uses.
pub struct Ports {
    pub sso: Arc<dyn Sso>,
    /// Whether an external system keeps the OAuth clients.
    pub sso_is_external: bool,
    pub dns: Option<Arc<dyn Dns>>,
    pub metrics: Option<Arc<dyn Metrics>>,
    pub ams: Option<Arc<dyn Ams>>,
    /// For agents.
    pub observability_access_token: SecretValue,
}

impl Fleet {
    pub fn new(
        config: Config,
        catalogue: Catalogue,
        (store, ambient, kinds): (Arc<dyn Store>, Ambient, Kinds),
        secrets: Secrets,
        ports: Ports,
        (tls_cert, tls_key): (String, String),
        url: String,
    ) -> Fleet {
        let edition = ambient.id();
        Fleet {
            // In a pod, its name.
            replica: match std::env::var("HOSTNAME") {
                Ok(host) if !host.is_empty() => format!("{host}-{edition}"),
                _ => edition.clone(),
            },
            edition,
            config,
            catalogue: RwLock::new(Arc::new(catalogue)),
            catalogue_version: AtomicU64::new(0),
            catalogue_changes: watch::Sender::new(()),
            index: Index::default(),
            store,
            ambient,
            kinds,
            secrets,
            ports,
            tls_cert,
            tls_key,
            url,
            agent_liveness: AgentLiveness::default(),
            counts: Default::default(),
            rendered: Default::default(),
        }
    }

    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.read().clone()
    }

    /// Returns a number that changes when the catalogue is replaced.
    pub fn catalogue_version(&self) -> u64 {
        self.catalogue_version.load(Ordering::Acquire)
    }

    pub fn set_catalogue(&self, catalogue: Catalogue) {
        *self.catalogue.write() = Arc::new(catalogue);
        self.catalogue_version.fetch_add(1, Ordering::Release);
        self.catalogue_changes.send_replace(());
    }

    /// Notifies of each replacement of the catalogue.
    pub fn catalogue_changes(&self) -> watch::Receiver<()> {
        self.catalogue_changes.subscribe()
    }

    pub async fn commit(&self, change: Change, now: Timestamp) -> Result<()> {
        kernel::store::commit(self.store.as_ref(), change, now).await.map(drop)
    }

    /// Commits an audit entry on its own.
    pub async fn record(&self, audit: AuditDraft) -> Result<()> {
        let change = Change { audit: Some(audit), ..Change::default() };
        self.commit(change, self.ambient.now()).await
    }

    /// Reads an object and commits the change that `change` returns for it; repeats if another
    /// writer came in between. Without a change, nothing is committed.
    pub async fn edit<T>(
        &self,
        key: &Key,
        change: impl FnMut(Option<&Object>, Timestamp) -> Result<(Option<Change>, T)>,
    ) -> Result<T> {
        kernel::store::edit(self.store.as_ref(), &self.ambient, key, change).await
    }

    /// Records contact with a cluster's agent.
    pub fn touch_agent(&self, cluster: &str) {
        self.agent_liveness.touch(cluster, self.ambient.now());
    }

    /// Returns all clusters, the best for this instance first.
    pub fn rank_clusters(&self, instance: &Instance) -> Vec<PlacementVerdict> {
        let candidates = self.index.candidates(&instance.spec.instance_type);
        rank_clusters(instance, self.config.scaling, candidates)
    }

    /// The parameters that a cluster's agent is started with.
    pub fn agent_parameters(&self, cluster: &Cluster) -> Vec<(&'static str, String)> {
        let client = agent_client(&self.secrets, cluster);
        let agent = &self.config.agent;
        let url = match &self.config.kubernetes.control_plane_url {
            url if url.is_empty() => &self.url,
            url => url,
        };
        vec![
            ("sso-auth-server-url", self.ports.sso.endpoints().issuer),
            ("sso-client-id", client.id),
            ("sso-secret", client.secret),
            ("control-plane-url", url.clone()),
            ("cluster-id", cluster.id.clone()),
            ("poll-interval", agent.poll_interval.clone()),
            ("resync-interval", agent.resync_interval.clone()),
        ]
    }

    /// The secrets that an agent gets with an instance.
    pub fn agent_secrets(&self, instance: &Instance) -> AgentSecrets {
        AgentSecrets {
            sso: self.ports.sso.endpoints(),
            canary_secret: self.secrets.derive(&canary_client_id(&instance.id), 0),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
        }
    }

    pub fn scope<'a>(
        &'a self,
        kind: &'a Kind,
        instance: &'a Instance,
        secrets: Option<&'a AgentSecrets>,
    ) -> InstanceScope<'a> {
        let browser_url = match self.config.browser_url.as_str() {
            "" => &self.url,
            url => url,
        };
        InstanceScope { kind: &kind.file, instance, browser_url, secrets }
    }
}

pub struct FleetDomain {
    pub config: Config,
    pub data_dir: PathBuf,
    /// Whether only this process uses the store.
    pub embedded: bool,
    /// What runs the leash, if not this binary.
    pub leash_argv: Option<Vec<OsString>>,
}

impl FleetDomain {
    pub fn new(config: Config, data_dir: PathBuf, embedded: bool) -> FleetDomain {
        FleetDomain { config, data_dir, embedded, leash_argv: None }
    }

    fn ports(&self, app: &App) -> Result<Ports> {
        let Config { dns, keycloak, prometheus, ams: accounts, .. } = &self.config;
        let external = keycloak.is_on();
        let sso: Arc<dyn Sso> = if external {
            Arc::new(Keycloak::new(keycloak, &app.outbound)?)
        } else {
            Arc::new(BuiltIn { url: app.url.clone() })
        };
        let key = "fleet.agent.observability_access_token";
        let token = &self.config.agent.observability_access_token;
        let mut ports = Ports {
            sso,
            sso_is_external: external,
            dns: None,
            metrics: None,
            ams: None,
            observability_access_token: app.outbound.secret(key, token)?,
        };
        if dns.is_on() {
            ports.dns = Some(Arc::new(Route53::new(dns, &app.outbound)?));
        }
        if prometheus.is_on() {
            ports.metrics = Some(Arc::new(Prometheus::new(prometheus, &app.outbound)?));
        }
        if self.config.quota_type == QuotaType::Ams || self.config.terms.required {
            ports.ams = Some(Arc::new(ams::Http::new(accounts, &app.outbound)?));
        }
        Ok(ports)
    }

    /// Whether this machine runs instances itself.
    fn is_data_plane(&self) -> bool {
        let only_data_plane = self.embedded && self.config.clusters_file.is_none();
        self.config.local.enabled.unwrap_or(only_data_plane)
    }

    fn tls(&self) -> Result<(String, String)> {
        let read = |field: &str, file: &Option<PathBuf>| match file {
            None => Ok(String::new()),
            Some(file) => std::fs::read_to_string(file).map_err(|error| {
                Error::invalid(format!("fleet.tls.{field}"), format!("{}: {error}", file.display()))
            }),
        };
        let tls = &self.config.tls;
        Ok((read("cert_file", &tls.cert_file)?, read("key_file", &tls.key_file)?))
    }
}

/// Loads all objects into the index and keeps it up to date.
pub async fn follow(
    fleet: &Arc<Fleet>,
    tail: &EventTail,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<()> {
    let mut kinds: Vec<String> = fleet.catalogue().kinds.keys().cloned().collect();
    const FIXED: [&str; 3] = [cluster::KIND, account::KIND, catalogue_load::KIND];
    kinds.extend(FIXED.map(str::to_owned));
    let state = fleet.clone();
    let is_ours = move |kind: &str| FIXED.contains(&kind) || state.catalogue().kind(kind).is_some();
    let state = fleet.clone();
    let apply = move |update: CacheUpdate, seq: i64| match update {
        CacheUpdate::Upsert(object) => state.index.apply(&object, seq),
        CacheUpdate::Resync(keys) => state.index.retain(&keys, seq),
    };
    let informer = Informer::load(tail, &kinds, Arc::new(is_ours), Arc::new(apply)).await?;
    fleet.index.attach(informer.clone());
    rechecks::register(fleet.store.as_ref(), fleet.ambient.now()).await?;
    let stop = stop.clone();
    tasks.spawn(async move { informer.run(stop).await });
    Ok(())
}

/// Returns the API of every kind, and the fleet's own routes.
pub fn routes(fleet: &Arc<Fleet>) -> Routes {
    let routes = fleet::routes().merge(keycloak::routes()).merge(ocm::routes());
    routes.with_state(fleet).mount(KindApis(fleet.clone()))
}

/// How often the files' modification times are compared: mounted configuration sends no signal.
const CATALOGUE_POLL: Duration = Duration::from_secs(5);

/// Reloads the catalogue when one of its files changes, and at SIGHUP. After an error the previous
/// catalogue stays.
async fn watch_catalogue(fleet: Arc<Fleet>, stop: CancellationToken) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    let files = Arc::new(fleet.config.catalogue_files());
    let modified_now = async || {
        let files = files.clone();
        kernel::files::blocking(move || files.modified()).await
    };
    let mut modified = modified_now().await;
    loop {
        let has_files = !modified.is_empty();
        tokio::select! {
            () = stop.cancelled() => return,
            _ = hangup.recv() => {}
            () = tokio::time::sleep(CATALOGUE_POLL), if has_files => {
                let now = modified_now().await;
                if now == modified {
                    continue;
                }
                modified = now;
            }
        }
        match catalogue_reload::reload(&fleet).await {
            Ok(()) => tracing::info!("reloaded the catalogue"),
            Err(error) => {
                tracing::error!(%error, "reloading the catalogue failed; keeping the previous one")
            }
        }
    }
}

impl FleetDomain {
    /// Starts it, and returns its state, too.
    pub async fn start_fleet(
        &self,
        app: &App,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<(Arc<Fleet>, Running)> {
        let catalogue = self.config.catalogue_files().load(app.kinds()).await?;
        let key = self.config.key_file.clone().unwrap_or_else(|| self.data_dir.join("fleet-key"));
        let secrets = Secrets::open(&key, &app.ambient)?;
        let fleet = Arc::new(Fleet::new(
            self.config.clone(),
            catalogue,
            (app.store.clone(), app.ambient.clone(), app.kinds().clone()),
            secrets,
            self.ports(app)?,
            self.tls()?,
            app.url.clone(),
        ));
        follow(&fleet, app.tail(), tasks, stop).await?;
        if let Some(builtin) = app.identity.builtin() {
            builtin.set_clients(Arc::new(FleetClientSource(fleet.clone())));
        }
        let terraform = Terraform::new(
            self.config.terraform.clone(),
            self.data_dir.join("terraform"),
            &app.outbound,
            self.leash_argv.clone().map_or_else(Leash::own_argv, Ok)?,
        )?;
        let clusters = ClusterWorker::start(
            &fleet,
            (terraform, app.blobs.clone()),
            &app.outbound,
            tasks,
            stop,
        );
        declared_clusters::sync(&fleet).await?;
        if self.is_data_plane() {
            agent::start(&fleet, self.data_dir.join("instances"), tasks, stop).await?;
        }
        tasks.spawn(watch_catalogue(fleet.clone(), stop.clone()));
        catalogue_reload::register(&fleet, self.embedded).await?;
        let (follower, stopped) = (fleet.clone(), stop.clone());
        tasks.spawn(async move { catalogue_reload::follow_requests(&follower, &stopped).await });
        let scrape = Scrape(fleet.clone());
        app.metrics.register(|registry| registry.register_collector(Box::new(scrape)));
        app.metrics.add_observer(Arc::new(Scrape(fleet.clone())));
        let (checked, outbound) = (fleet.clone(), app.outbound.clone());
        app.checks().add_source(Arc::new(move || health::checks(&checked, &outbound)));
        app.kinds().add_source(Arc::new(FleetKinds(fleet.clone())));
        app.commands().add_source(Arc::new(FleetCommands(fleet.clone())));
        let routes = routes(&fleet);
        let workers: Workers = vec![
            Arc::new(InstanceWorker(fleet.clone())),
            Arc::new(AccountWorker(fleet.clone())),
            Arc::new(RecheckWorker(fleet.clone())),
            Arc::new(clusters),
        ];
        Ok((fleet, Running { routes, workers }))
    }
}

#[async_trait]
impl Domain for FleetDomain {
    fn name(&self) -> &'static str {
        "fleet"
    }

    fn kinds(&self) -> Vec<KindInfo> {
        let hidden = |(name, plural)| KindInfo::new(name, plural, Presenter::Hidden);
        [(recheck::KIND, "rechecks"), (catalogue_load::KIND, "catalogues")].map(hidden).into()
    }

    async fn start(
        &self,
        app: &App,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Running> {
        Ok(self.start_fleet(app, tasks, stop).await?.1)
    }
}
