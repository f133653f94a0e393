//! The section `advisor` of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kernel::identity::{Action, Principal};
use kernel::{Error, Result};
use serde::{Deserialize, Serialize};

pub use crate::model::datasource::{Authentication, Datasource};
pub use crate::model::topics::{MessageKey, Topics};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The Prometheus servers that jobs read, by name. A job that names none reads `prometheus-1`.
    pub datasources: BTreeMap<String, Datasource>,
    /// Callers without a token act as this identity on the paths of the existing service, which has
    /// no sign-in. Without it they are refused.
    pub open_as: Option<OpenAs>,
    /// The names of experiments.
    pub experiment_name: String,
    /// Of one job. A larger one fails before anything is read.
    pub containers_max: usize,
    /// Of an organisation, at once. More are queued.
    pub jobs_max: i64,
    /// Of a data source, read at once over all replicas. Each takes up to 100 MB while it is read.
    pub shards_max: i64,
    /// How often a job tries again a data source that does not answer, with growing waits: 9 times
    /// are about two minutes.
    pub source_retries_max: i32,
    /// A job that takes longer fails. Its time in the queue does not count.
    pub job_timeout_s: u64,
    /// How long ended jobs and their results are kept. With 0 they are removed at once, also if a sink
    /// or a webhook has not had them yet.
    pub jobs_days: u64,
    /// Whether box plots are part of recommendations.
    pub plots: bool,
    /// How long `generateRecommendations` and `updateRecommendations` wait for their recommendation.
    /// It is made also after that.
    pub recommend_timeout_s: u64,
    /// Results that one `updateResults` may have.
    pub results_max: usize,
    /// How long uploaded results are kept. The long term reads those of 15 days; with 0 none are kept.
    pub results_days: u64,
    /// May data sources and webhooks of users have private addresses?
    pub private_addresses: bool,
    /// The cluster whose namespaces and workloads admins are shown; without it, the one around this
    /// pod.
    pub kubeconfig: Option<PathBuf>,
    /// The webhook of a job with more of them gets the job without its experiments.
    pub webhook_experiments_max: u32,
    /// What sinks with `renderer = "kruize"` publish, and where.
    pub topics: Topics,
}

/// Who callers without a token are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenAs {
    pub subject: String,
    #[serde(default)]
    pub org: String,
    #[serde(default)]
    pub roles: Vec<String>,
}

impl OpenAs {
    pub const ISSUER: &str = "advisor";

    /// Everybody is this identity: it must be one of the organisation's own.
    fn check(&self) -> Result<()> {
        if self.subject.trim().is_empty() {
            return Err(Error::invalid("advisor.open_as.subject", "must be given"));
        }
        if Action::AdminRead.allows(&self.principal()) {
            let why = "must not have a role of admins: everybody would be one";
            return Err(Error::invalid("advisor.open_as.roles", why));
        }
        Ok(())
    }

    pub fn principal(&self) -> Principal {
        Principal {
            subject: self.subject.clone(),
            issuer: OpenAs::ISSUER.into(),
            org: self.org.clone(),
            roles: self.roles.iter().map(|role| role.to_lowercase()).collect(),
            ..Principal::default()
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            datasources: BTreeMap::new(),
            open_as: None,
            experiment_name: crate::model::experiment_name::DEFAULT.into(),
            containers_max: 50_000,
            jobs_max: 10,
            shards_max: 2,
            source_retries_max: 9,
            job_timeout_s: 6 * 3600,
            jobs_days: 30,
            plots: true,
            recommend_timeout_s: 60,
            results_max: 100,
            results_days: 16,
            private_addresses: false,
            kubeconfig: None,
            webhook_experiments_max: 500,
            topics: Topics::default(),
        }
    }
}

impl Config {
    /// Finds what cannot be right without asking anybody.
    pub fn check(&self) -> Result<()> {
        for (name, datasource) in &self.datasources {
            let key = format!("advisor.datasources.{name}");
            datasource.check(&key)?;
            datasource.base_url(&key)?;
        }
        self.topics.check()?;
        self.open_as.as_ref().map_or(Ok(()), OpenAs::check)?;
        let at_least_one = [
            ("containers_max", self.containers_max as i64),
            ("jobs_max", self.jobs_max),
            ("shards_max", self.shards_max),
            ("job_timeout_s", i64::try_from(self.job_timeout_s).unwrap_or(i64::MAX)),
            ("recommend_timeout_s", i64::try_from(self.recommend_timeout_s).unwrap_or(i64::MAX)),
            ("results_max", self.results_max as i64),
        ];
        match at_least_one.iter().find(|(_, value)| *value < 1) {
            Some((name, _)) => Err(Error::invalid(format!("advisor.{name}"), "must be at least 1")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_api_has_a_name_and_makes_nobody_an_admin() {
        let refusal = |subject: &str, roles: &[&str]| {
            let roles = roles.iter().map(|role| (*role).to_owned()).collect();
            let open_as = OpenAs { subject: subject.into(), org: "acme".into(), roles };
            let config = Config { open_as: Some(open_as), ..Config::default() };
            config.check().err().map(|error| error.to_string())
        };
        assert_eq!(refusal("everybody", &["user"]), None);
        let blank = refusal(" ", &[]).unwrap();
        assert_eq!(blank, "advisor.open_as.subject: must be given");
        for role in ["admin-read", "Admin-Write", "admin-full"] {
            let admin = refusal("everybody", &["user", role]).unwrap();
            assert!(admin.starts_with("advisor.open_as.roles: must not have"), "{admin}");
        }
    }
}
