//! The fleet as a domain of the server: made at its start, followed until its end.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::FutureExt as _;
use kernel::driver::Workers;
use kernel::http::Routes;
use kernel::informer::{CacheUpdate, Informer};
use kernel::{App, Domain, Error, Result};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Fleet;
use crate::api::accounts::realm;
use crate::api::{gateway, openapi, own, reply, router};
use crate::clients::Known;
use crate::config::{Config, QuotaType};
use crate::fleet::Ports;
use crate::metrics::Scrape;
use crate::model::{account, cluster};
use crate::plane::runner;
use crate::ports::ams;
use crate::ports::dns::Route53;
use crate::ports::prometheus::Prometheus;
use crate::ports::sso::{BuiltIn, Keycloak};
use crate::ports::terraform::Terraform;
use crate::reload;
use crate::rules::Rules;
use crate::secrets::Secrets;
use crate::work::account::Accounts;
use crate::work::cluster::Clusters;
use crate::work::declared::sync_clusters;
use crate::work::instance::Instances;

pub struct FleetDomain {
    pub config: Config,
    pub data_dir: PathBuf,
    /// Whether the store is this process's alone.
    pub embedded: bool,
    fleet: OnceLock<Arc<Fleet>>,
    clusters: OnceLock<Arc<Clusters>>,
}

impl FleetDomain {
    pub fn new(config: Config, data_dir: PathBuf, embedded: bool) -> FleetDomain {
        FleetDomain {
            config,
            data_dir,
            embedded,
            fleet: OnceLock::new(),
            clusters: OnceLock::new(),
        }
    }

    fn fleet(&self) -> &Arc<Fleet> {
        self.fleet.get().expect("the server starts a domain before it asks for anything")
    }

    fn ports(&self, app: &App) -> Result<Ports> {
        let Config { dns, keycloak, prometheus, ams: accounts, .. } = &self.config;
        let outside = keycloak.is_on();
        Ok(Ports {
            sso: match outside {
                true => Arc::new(Keycloak::new(keycloak, &app.outbound)?),
                false => Arc::new(BuiltIn { url: app.url.clone() }),
            },
            sso_is_outside: outside,
            dns: match dns.is_on() {
                true => Some(Arc::new(Route53::new(dns, &app.outbound)?)),
                false => None,
            },
            metrics: match prometheus.is_on() {
                true => Some(Arc::new(Prometheus::new(prometheus, &app.outbound)?)),
                false => None,
            },
            ams: match self.config.quota_type == QuotaType::Ams || self.config.terms.required {
                true => Some(Arc::new(ams::Http::new(accounts, &app.outbound)?)),
                false => None,
            },
        })
    }

    /// Whether this machine runs instances itself.
    fn is_data_plane(&self) -> bool {
        let alone = self.embedded && self.config.clusters_file.is_none();
        self.config.local.enabled.unwrap_or(alone)
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

/// Reads everything into the index, and keeps it up to date.
pub async fn follow(
    fleet: &Arc<Fleet>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<()> {
    let mut kinds: Vec<String> = fleet.rules().kinds.keys().cloned().collect();
    kinds.extend([cluster::KIND.to_owned(), account::KIND.to_owned()]);
    let of = fleet.clone();
    let wanted = move |kind: &str| {
        kind == cluster::KIND || kind == account::KIND || of.rules().kind(kind).is_some()
    };
    let into = fleet.clone();
    let apply = move |sight: CacheUpdate, seq: i64| match sight {
        CacheUpdate::Upsert(object) => into.index.apply(&object, seq),
        CacheUpdate::Resync(keys) => into.index.retain(&keys, seq),
    };
    let informer =
        Informer::load(fleet.store.clone(), &kinds, Arc::new(wanted), Arc::new(apply)).await?;
    fleet.index.attach(informer.clone());
    let stop = stop.clone();
    tasks.spawn(async move { informer.run(stop).await });
    Ok(())
}

/// Every kind's API, and our own routes beside.
pub fn routes(fleet: &Arc<Fleet>) -> Routes {
    let (take, of, documented) = (fleet.clone(), fleet.clone(), fleet.clone());
    let paths = move |path: &str| take.takes(path);
    own::routes()
        .merge(realm::routes())
        .merge(gateway::routes())
        .documented_by(move || openapi::documents(&documented))
        .errors_where(paths.clone(), reply::mapper(fleet.clone()))
        .surfaces(paths, move |app, context, request| {
            router::answer(of.clone(), app, context, request).boxed()
        })
}

#[async_trait]
impl Domain for FleetDomain {
    fn name(&self) -> &'static str {
        "fleet"
    }

    async fn start(&self, app: &App, tasks: &TaskTracker, stop: &CancellationToken) -> Result<()> {
        let rules = Rules::read(&self.config)?;
        let key = self.config.key_file.clone().unwrap_or_else(|| self.data_dir.join("fleet-key"));
        let secrets = Secrets::open(&key, &app.ambient)?;
        let fleet = Arc::new(Fleet::new(
            self.config.clone(),
            rules,
            (app.store.clone(), app.ambient.clone()),
            secrets,
            self.ports(app)?,
            self.tls()?,
            app.url.clone(),
        ));
        follow(&fleet, tasks, stop).await?;
        if let Some(builtin) = app.identity.builtin() {
            builtin.set_clients(Arc::new(Known(fleet.clone())));
        }
        let terraform =
            Terraform::new(self.config.terraform.clone(), self.data_dir.join("terraform"));
        let clusters = Clusters::start(&fleet, terraform, tasks, stop);
        let _ = self.clusters.set(Arc::new(clusters));
        sync_clusters(&fleet).await?;
        if self.is_data_plane() {
            runner::start(&fleet, self.data_dir.join("instances"), tasks, stop).await?;
        }
        tasks.spawn(reload::watch(fleet.clone(), stop.clone()));
        let scrape = Scrape(fleet.clone());
        app.metrics.register(|registry| registry.register_collector(Box::new(scrape)));
        app.metrics.watch(Arc::new(Scrape(fleet.clone())));
        app.share(fleet.clone());
        let _ = self.fleet.set(fleet);
        Ok(())
    }

    fn routes(&self) -> Routes {
        routes(self.fleet())
    }

    fn workers(&self, _: &App) -> Workers {
        let fleet = self.fleet();
        let mut workers: Workers =
            vec![Arc::new(Instances(fleet.clone())), Arc::new(Accounts(fleet.clone()))];
        if let Some(clusters) = self.clusters.get() {
            workers.push(clusters.clone());
        }
        workers
    }
}
