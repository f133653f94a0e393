//! The parts of Jobs and CronJobs that decisions need.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::hash::{Digest, canonical_digest};
use super::meta::{Condition, Owner, RawMeta, Revision};
use super::{
    BACKFILLING, CHECKSUM, CONFIGURATION_HASH, NamespacedName, RESTART, SECRETS_HASH, STATE,
    STREAM_ID, STREAM_KIND, TEMPLATE_HASH,
};

#[derive(Debug, Clone, Deserialize)]
pub struct RawJob {
    pub metadata: RawMeta,
    #[serde(default)]
    pub spec: RawSpec,
    #[serde(default)]
    pub status: RawStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawSpec {
    pub template: RawPod,
}

impl RawSpec {
    /// The value of a variable of the first container.
    fn variable(&self, name: &str) -> Option<&str> {
        let first = self.template.spec.containers.first()?;
        first.env.iter().rfind(|variable| variable.name == name)?.value.as_deref()
    }

    /// The canonical digest of the stream's spec in the environment.
    fn canonical_digest(&self) -> Option<Digest> {
        let spec: Value = serde_json::from_str(self.variable("STREAMCONTEXT__SPEC")?).ok()?;
        Some(canonical_digest(&spec, &[]))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawPod {
    pub spec: RawPodSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawPodSpec {
    pub containers: Vec<RawContainer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawContainer {
    pub env: Vec<RawVariable>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawVariable {
    pub name: String,
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawStatus {
    pub conditions: Option<Vec<Condition>>,
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobResult {
    Complete,
    /// With the reason and message of Kubernetes.
    Failed(Box<str>),
    /// The Job was deleted before it ended, or no event says how it ended.
    Removed,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub object_name: NamespacedName,
    pub uid: Box<str>,
    pub revision: Revision,
    pub created: Timestamp,
    pub deleting: bool,
    pub owner: Option<Box<Owner>>,
    /// From its labels.
    pub stream: Option<Box<str>>,
    pub kind: Option<Box<str>>,
    pub backfilling: bool,
    /// The name of the request that the Job carries out.
    pub backfill_id: Option<Box<str>>,
    pub hash: Option<Box<str>>,
    /// The canonical digest of the spec in its environment.
    pub canonical_digest: Option<Digest>,
    pub template_hash: Option<Box<str>>,
    pub secrets_hash: Option<Box<str>>,
    pub restart: Option<Box<str>>,
    pub state: Option<Box<str>>,
    pub ended: Option<(JobResult, Timestamp)>,
}

impl Job {
    /// Returns none unless it is a Job of a stream or of a CronJob.
    pub fn of(raw: RawJob) -> Option<Job> {
        let RawJob { metadata, spec, status } = raw;
        let owner = metadata.controller().cloned().map(Box::new);
        let labelled = metadata.label(STREAM_ID).is_some();
        let scheduled = owner.as_ref().is_some_and(|owner| owner.kind == "CronJob");
        if !labelled && !scheduled {
            return None;
        }
        let annotation = |name: &str| metadata.annotation(name).map(Box::from);
        Some(Job {
            object_name: metadata.object_name(),
            revision: metadata.revision(),
            created: metadata.creation_timestamp.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            stream: metadata.label(STREAM_ID).map(Box::from),
            kind: metadata.label(STREAM_KIND).map(Box::from),
            backfilling: metadata.label(BACKFILLING) == Some("true"),
            backfill_id: spec.variable("STREAMCONTEXT__BACKFILL_ID").map(Box::from),
            hash: annotation(CONFIGURATION_HASH).or_else(|| annotation(CHECKSUM)),
            canonical_digest: spec.canonical_digest(),
            template_hash: annotation(TEMPLATE_HASH),
            secrets_hash: annotation(SECRETS_HASH),
            restart: annotation(RESTART),
            state: annotation(STATE),
            ended: ended(&status),
            owner,
            uid: metadata.uid.into(),
        })
    }

    pub fn failed(&self) -> Option<&str> {
        match &self.ended {
            Some((JobResult::Failed(why), _)) => Some(why),
            _ => None,
        }
    }

    pub fn complete(&self) -> bool {
        matches!(self.ended, Some((JobResult::Complete, _)))
    }
}

fn ended(status: &RawStatus) -> Option<(JobResult, Timestamp)> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let is = |kind: &str| conditions.iter().find(|c| c.kind == kind && c.status == "True");
    let at = |condition: &Condition| condition.last_transition_time.unwrap_or_default();
    if let Some(failed) = is("Failed") {
        let reason = failed.reason.as_deref().unwrap_or("Failed");
        let why = match failed.message.as_deref() {
            Some(message) if !message.is_empty() => format!("{reason}: {message}"),
            _ => reason.into(),
        };
        return Some((JobResult::Failed(why.into()), at(failed)));
    }
    is("Complete").map(|complete| (JobResult::Complete, at(complete)))
}

#[derive(Debug, Clone, Deserialize)]
pub struct RawCronJob {
    pub metadata: RawMeta,
    #[serde(default)]
    pub spec: RawCronJobSpec,
    #[serde(default)]
    pub status: RawCronJobStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawCronJobSpec {
    pub schedule: String,
    #[serde(rename = "jobTemplate")]
    pub job: RawJobTemplate,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawJobTemplate {
    pub spec: RawSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawCronJobStatus {
    pub last_schedule_time: Option<Timestamp>,
    pub last_successful_time: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CronJob {
    pub object_name: NamespacedName,
    pub uid: Box<str>,
    pub revision: Revision,
    pub deleting: bool,
    pub owner: Option<Box<Owner>>,
    pub hash: Option<Box<str>>,
    pub canonical_digest: Option<Digest>,
    pub template_hash: Option<Box<str>>,
    pub secrets_hash: Option<Box<str>>,
    pub restart: Option<Box<str>>,
    pub schedule: Box<str>,
    pub last_run: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
}

impl CronJob {
    /// Returns none unless it is a CronJob of a stream.
    pub fn of(raw: RawCronJob) -> Option<CronJob> {
        let RawCronJob { metadata, spec, status } = raw;
        let annotation = |name: &str| metadata.annotation(name).map(Box::from);
        let hash = annotation(CONFIGURATION_HASH).or_else(|| annotation(CHECKSUM))?;
        Some(CronJob {
            object_name: metadata.object_name(),
            revision: metadata.revision(),
            deleting: metadata.deletion_timestamp.is_some(),
            owner: metadata.controller().cloned().map(Box::new),
            hash: Some(hash),
            canonical_digest: spec.job.spec.canonical_digest(),
            template_hash: annotation(TEMPLATE_HASH),
            secrets_hash: annotation(SECRETS_HASH),
            restart: annotation(RESTART),
            schedule: spec.schedule.into(),
            last_run: status.last_schedule_time,
            last_success: status.last_successful_time,
            uid: metadata.uid.into(),
        })
    }
}
