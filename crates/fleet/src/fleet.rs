//! The fleet of one process: its rules, its picture of everything, and the systems it uses.

use std::sync::Arc;

use kernel::{Ambient, Store};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::config::Config;
use crate::decide::place::{Judgement, Request, judge};
use crate::index::Index;
use crate::model::cluster::Cluster;
use crate::model::instance::Instance;
use crate::ports::ams::Ams;
use crate::ports::dns::Dns;
use crate::ports::prometheus::Metrics;
use crate::ports::sso::Sso;
use crate::rules::Rules;
use crate::secrets::Secrets;
use crate::view::{ForAgent, View, canary_id};

pub struct Fleet {
    pub config: Config,
    rules: RwLock<Arc<Rules>>,
    rules_bell: watch::Sender<()>,
    pub index: Index,
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub secrets: Secrets,
    pub sso: Arc<dyn Sso>,
    /// Clients are kept somewhere else than here.
    pub sso_is_outside: bool,
    pub dns: Option<Arc<dyn Dns>>,
    pub metrics: Option<Arc<dyn Metrics>>,
    pub ams: Option<Arc<dyn Ams>>,
    pub tls_cert: String,
    pub tls_key: String,
    /// This server, as others reach it.
    pub url: String,
    pub(crate) heard: crate::heard::Heard,
    pub(crate) counts: crate::metrics::Counts,
    pub(crate) rendered: crate::api::rendered::Rendered,
    /// Names this start of this process: what is told by one may be told otherwise by another.
    pub(crate) edition: String,
}

/// The systems that a fleet uses.
pub struct Ports {
    pub sso: Arc<dyn Sso>,
    pub sso_is_outside: bool,
    pub dns: Option<Arc<dyn Dns>>,
    pub metrics: Option<Arc<dyn Metrics>>,
    pub ams: Option<Arc<dyn Ams>>,
}

impl Fleet {
    pub fn new(
        config: Config,
        rules: Rules,
        (store, ambient): (Arc<dyn Store>, Ambient),
        secrets: Secrets,
        ports: Ports,
        (tls_cert, tls_key): (String, String),
        url: String,
    ) -> Fleet {
        let Ports { sso, sso_is_outside, dns, metrics, ams } = ports;
        let edition = ambient.id();
        Fleet {
            edition,
            config,
            rules: RwLock::new(Arc::new(rules)),
            rules_bell: watch::Sender::new(()),
            index: Index::default(),
            store,
            ambient,
            secrets,
            sso,
            sso_is_outside,
            dns,
            metrics,
            ams,
            tls_cert,
            tls_key,
            url,
            heard: Default::default(),
            counts: Default::default(),
            rendered: Default::default(),
        }
    }

    pub fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    pub fn set_rules(&self, rules: Rules) {
        *self.rules.write() = Arc::new(rules);
        self.rules_bell.send_replace(());
    }

    /// Rings when the rules were replaced.
    pub fn rules_bell(&self) -> watch::Receiver<()> {
        self.rules_bell.subscribe()
    }

    /// Whether some kind's API has this path.
    pub fn takes(&self, path: &str) -> bool {
        path.starts_with("/api/") && self.rules.read().kind_of_path(path).is_some()
    }

    /// All clusters, the best for this instance first.
    pub fn judge(&self, instance: &Instance) -> Vec<Judgement> {
        let spec = &instance.spec;
        let request = Request {
            kind: &instance.kind,
            org: &instance.org,
            cloud_provider: &spec.cloud_provider,
            region: &spec.region,
            multi_az: spec.multi_az,
            instance_type: &spec.instance_type,
            units: spec.units,
            own_cluster: &spec.own_cluster_id,
            refused_by: &instance.seen.refused_by,
            scaling: self.config.scaling,
        };
        judge(&request, self.index.candidates(&spec.instance_type))
    }

    /// What a cluster's agent is started with.
    pub fn agent_parameters(&self, cluster: &Cluster) -> Vec<(&'static str, String)> {
        let client = crate::clients::agent(self, cluster);
        let agent = &self.config.agent;
        let here = match &self.config.kubernetes.control_plane_url {
            url if url.is_empty() => &self.url,
            url => url,
        };
        vec![
            ("sso-auth-server-url", self.sso.endpoints().issuer),
            ("sso-client-id", client.id),
            ("sso-secret", client.secret),
            ("control-plane-url", here.clone()),
            ("cluster-id", cluster.id.clone()),
            ("poll-interval", agent.poll_interval.clone()),
            ("resync-interval", agent.resync_interval.clone()),
        ]
    }

    /// What the agent of an instance's cluster is told beside the instance.
    pub fn for_agent(&self, instance: &Instance) -> ForAgent {
        ForAgent {
            sso: self.sso.endpoints(),
            canary_secret: self.secrets.of(&canary_id(&instance.id), 0),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
        }
    }

    pub fn view<'a>(
        &'a self,
        kind: &'a crate::model::kind::Kind,
        instance: &'a Instance,
        secrets: Option<&'a ForAgent>,
    ) -> View<'a> {
        let browser_url = match self.config.browser_url.as_str() {
            "" => &self.url,
            url => url,
        };
        View { kind, instance, browser_url, secrets }
    }
}
