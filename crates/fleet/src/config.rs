//! The fleet's section of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::model::settings::{QuotaSettings, QuotaType, Scaling, Timeouts};
use crate::ports;
use crate::store::catalogue_files::CatalogueFiles;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Directory of further kind files (*.yaml); one of an embedded kind replaces it.
    pub kinds_dir: Option<PathBuf>,
    /// Quota by organisation and user. Without it everyone gets trial instances.
    pub quota_file: Option<PathBuf>,
    /// `list` (the file) or `ams`.
    pub quota_type: QuotaType,
    /// Whether the limits of the quota list are enforced.
    pub quota_enforced: bool,
    /// The limit of entries in the quota list that have none.
    pub max_allowed_instances: i64,
    /// A list of user names that are denied access.
    pub deny_file: Option<PathBuf>,
    /// A list of organisations; all others get a maintenance error.
    pub access_file: Option<PathBuf>,
    pub providers_file: Option<PathBuf>,
    pub clusters_file: Option<PathBuf>,
    /// How clusters are created, and how instances are placed on them.
    pub scaling: Scaling,
    pub trial: Trial,
    /// The most service accounts that an organisation may have.
    pub service_accounts_max: i64,
    /// The domain of the instances' hosts.
    pub domain: String,
    /// The prefix of an instance's id in `browser_url`; empty: this server.
    pub browser_url: String,
    /// The key from which clients' secrets are derived; replicas must share it. Default: `fleet-key`
    /// in the data directory, created on first start.
    pub key_file: Option<PathBuf>,
    pub local: Local,
    pub agent: Agent,
    pub timeouts: Timeouts,
    pub tls: Tls,
    pub dns: ports::dns::Config,
    pub keycloak: ports::sso::Config,
    pub prometheus: ports::prometheus::Config,
    pub ams: ports::ams::Config,
    pub terms: Terms,
    pub kubernetes: ports::kubernetes::Config,
    pub terraform: ports::terraform::Config,
    pub dynamic: Dynamic,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            kinds_dir: None,
            quota_file: None,
            quota_type: QuotaType::List,
            quota_enforced: true,
            max_allowed_instances: 1,
            deny_file: None,
            access_file: None,
            providers_file: None,
            clusters_file: None,
            scaling: Scaling::Manual,
            trial: Trial::default(),
            service_accounts_max: 50,
            domain: "mainstay.localhost".into(),
            browser_url: String::new(),
            key_file: None,
            local: Local::default(),
            agent: Agent::default(),
            timeouts: Timeouts::default(),
            tls: Tls::default(),
            dns: Default::default(),
            keycloak: Default::default(),
            prometheus: Default::default(),
            ams: Default::default(),
            terms: Terms::default(),
            kubernetes: Default::default(),
            terraform: Default::default(),
            dynamic: Dynamic::default(),
        }
    }
}

impl Config {
    pub fn quota_settings(&self) -> QuotaSettings {
        QuotaSettings {
            quota_type: self.quota_type,
            enforced: self.quota_enforced,
            max_allowed_instances: self.max_allowed_instances,
            trials_allowed: self.trial.allowed,
            trials_max: self.trial.max,
        }
    }

    /// The files that the catalogue is read from.
    pub fn catalogue_files(&self) -> CatalogueFiles {
        CatalogueFiles {
            kinds_dir: self.kinds_dir.clone(),
            quota: self.quota_file.clone(),
            deny: self.deny_file.clone(),
            access: self.access_file.clone(),
            providers: self.providers_file.clone(),
            clusters: self.clusters_file.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trial {
    pub allowed: bool,
    /// Trial instances of each user of an organisation.
    pub max: i64,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { allowed: true, max: 10 }
    }
}

/// Instances that run as processes of this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Local {
    /// Default: enabled if the store is embedded and there is no other data plane.
    pub enabled: Option<bool>,
    pub units_max: i64,
}

impl Default for Local {
    fn default() -> Local {
        Local { enabled: None, units_max: 100 }
    }
}

/// Parameters of agents, and how long one may be silent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    pub poll_interval: String,
    pub resync_interval: String,
    pub lost_after_s: u64,
    /// Versions that our own agent offers, by kind and component; default: `latest`.
    pub offers: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    pub observability_repository: String,
    pub observability_channel: String,
    pub observability_tag: String,
    pub observability_access_token: kernel::secret::SecretSource,
}

impl Default for Agent {
    fn default() -> Agent {
        Agent {
            poll_interval: "15s".into(),
            resync_interval: "60s".into(),
            lost_after_s: 300,
            offers: BTreeMap::new(),
            observability_repository: String::new(),
            observability_channel: "resources".into(),
            observability_tag: "latest".into(),
            observability_access_token: Default::default(),
        }
    }
}

/// The certificate of the hosts of all instances.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// Terms that a user must accept before creating anything; AMS knows who did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Terms {
    pub required: bool,
    pub site: String,
    pub event: String,
}

/// Autoscaled clusters (`scaling = "auto"`). A direction that is not enabled is a dry run, which
/// only logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dynamic {
    pub scale_up: bool,
    pub scale_down: bool,
    /// How long a cluster is empty before it is deleted.
    pub idle_s: u64,
    /// Units that a new cluster may hold; default: as many as its agent reports.
    pub instance_limit: Option<i64>,
}

impl Default for Dynamic {
    fn default() -> Dynamic {
        Dynamic { scale_up: false, scale_down: false, idle_s: 600, instance_limit: None }
    }
}
