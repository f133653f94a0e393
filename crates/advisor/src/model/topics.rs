//! The topics that jobs are published on, as they are configured.

use kernel::{Error, Result};
use serde::{Deserialize, Serialize};

/// The documented shape of a recommendation.
const RECOMMENDATIONS: &str = "summary|job_id|status,\
                               experiments|name|status|apis|recommendations|response|status_history";
/// And of an error. Jobs that fail have their reason in the summary's notifications.
const ERROR: &str = "summary|job_id|status|notifications,experiments|name|status|apis|create|\
                     request|response|recommendations|status_history|notifications";

/// Names, and which parts of a job messages have: the grammar of `include` of `GET /bulk`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Topics {
    pub recommendations: String,
    pub error: String,
    pub summary: String,
    pub recommendations_include: String,
    pub error_include: String,
    pub summary_include: String,
    /// Of the messages: `experiment` (its name; the id of the job for messages about the job), `job`
    /// or `none`.
    pub key: MessageKey,
    /// Only these topics are published to. Empty: all three.
    pub only: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageKey {
    #[default]
    Experiment,
    Job,
    None,
}

impl Default for Topics {
    fn default() -> Topics {
        Topics {
            recommendations: "recommendations-topic".into(),
            error: "error-topic".into(),
            summary: "summary-topic".into(),
            recommendations_include: RECOMMENDATIONS.into(),
            error_include: ERROR.into(),
            summary_include: "summary".into(),
            key: MessageKey::default(),
            only: Vec::new(),
        }
    }
}

impl Topics {
    pub fn check(&self) -> Result<()> {
        let names = [
            ("recommendations", &self.recommendations),
            ("error", &self.error),
            ("summary", &self.summary),
        ];
        let legible = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let valid = |name: &str| (1..=249).contains(&name.len()) && name.bytes().all(legible);
        match names.iter().find(|(_, name)| !valid(name)) {
            Some((setting, _)) => Err(Error::invalid(
                format!("advisor.topics.{setting}"),
                "must be a name of 1 to 249 letters, digits, dots, dashes and underscores",
            )),
            None => self.check_only(&names.map(|(_, name)| name.as_str())),
        }
    }

    fn check_only(&self, names: &[&str]) -> Result<()> {
        let unknown = self.only.iter().find(|only| !names.contains(&only.as_str()));
        unknown.map_or(Ok(()), |unknown| {
            let why = format!("`{unknown}` is not one of {}", names.join(", "));
            Err(Error::invalid("advisor.topics.only", why))
        })
    }

    pub fn publishes(&self, topic: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|other| other == topic)
    }
}
