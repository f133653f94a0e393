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
    /// Further kind files (*.yaml); one of the same kind replaces what comes along.
    pub kinds_dir: Option<PathBuf>,
    /// Who may have how much. Without it everyone may have trials.
    pub quota_file: Option<PathBuf>,
    /// `list` (the file) or `ams`.
    pub quota_type: QuotaType,
    /// Whether the limits of the quota list are enforced.
    pub quota_enforced: bool,
    /// For entries of the quota list that say nothing.
    pub max_allowed_instances: i64,
    /// A list of user names that are kept out.
    pub deny_file: Option<PathBuf>,
    /// A list of organisations; when given, all others are told of maintenance.
    pub access_file: Option<PathBuf>,
    pub providers_file: Option<PathBuf>,
    pub clusters_file: Option<PathBuf>,
    /// How clusters come about, and how instances are placed on them.
    pub scaling: Scaling,
    pub trial: Trial,
    /// Service accounts that an organisation may have.
    pub service_accounts_max: i64,
    /// Under which the hosts of instances are.
    pub domain: String,
    /// Before the id in `browser_url`; empty: this server.
    pub browser_url: String,
    /// The key from which clients' secrets are derived, where replicas share one; else
    /// `fleet-key` in the data directory, made on first start.
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
    /// For each user of an organisation.
    pub max: i64,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { allowed: true, max: 10 }
    }
}

/// Instances as processes of this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Local {
    /// Not given: if there is no other data plane, and the store is embedded.
    pub enabled: Option<bool>,
    pub units_max: i64,
}

impl Default for Local {
    fn default() -> Local {
        Local { enabled: None, units_max: 100 }
    }
}

/// What agents are told, and how long they may be silent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    pub poll_interval: String,
    pub resync_interval: String,
    pub lost_after_s: u64,
    /// Versions that our own agent offers, by kind and component; what is not named is `latest`.
    pub offers: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    pub observability_repository: String,
    pub observability_channel: String,
    pub observability_tag: String,
    pub observability_access_token: kernel::telemetry::Secret,
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

/// The certificate of all instances' hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// Terms that a user must have accepted before they create anything; asked at AMS.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Terms {
    pub required: bool,
    pub site: String,
    pub event: String,
}

/// Clusters that come and go by themselves (`scaling = "auto"`). What is not switched on is only
/// written to the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dynamic {
    pub scale_up: bool,
    pub scale_down: bool,
    /// A cluster that has been empty for so long may go.
    pub idle_s: u64,
    /// Units that a new one may hold; not given: as many as its agent says.
    pub instance_limit: Option<i64>,
}

impl Default for Dynamic {
    fn default() -> Dynamic {
        Dynamic { scale_up: false, scale_down: false, idle_s: 600, instance_limit: None }
    }
}
