//! The parts of Jobs and CronJobs that decisions need.

use jiff::Timestamp;
use kubernetes::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde_json::Value;

use super::hash::{Digest, canonical_digest};
use super::meta::{Condition, Raw, Revision};
use super::{
    BACKFILLING, CHECKSUM, CONFIGURATION_HASH, NamespacedName, RESTART, SECRETS_HASH, STATE,
    STREAM_ID, STREAM_KIND, TEMPLATE_HASH,
};

pub type RawJob = Raw<RawSpec, RawStatus>;
pub type RawCronJob = Raw<RawCronJobSpec, RawCronJobStatus>;

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

/// What a Job or CronJob was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct MadeFrom {
    /// Of the configuration.
    pub hash: Option<Box<str>>,
    /// Of the stream's spec in the environment.
    pub canonical_digest: Option<Digest>,
    pub template_hash: Option<Box<str>>,
    pub secrets_hash: Option<Box<str>>,
    pub restart: Option<Box<str>>,
}

impl MadeFrom {
    fn of(metadata: &ObjectMeta, spec: &RawSpec) -> MadeFrom {
        let annotation = |name: &str| metadata.annotation(name).map(Box::from);
        let stream = spec.variable("STREAMCONTEXT__SPEC");
        let stream = stream.and_then(|spec| serde_json::from_str::<Value>(spec).ok());
        MadeFrom {
            hash: annotation(CONFIGURATION_HASH).or_else(|| annotation(CHECKSUM)),
            canonical_digest: stream.map(|spec| canonical_digest(&spec, &[])),
            template_hash: annotation(TEMPLATE_HASH),
            secrets_hash: annotation(SECRETS_HASH),
            restart: annotation(RESTART),
        }
    }
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
    pub owner: Option<Box<OwnerReference>>,
    /// From its labels.
    pub stream: Option<Box<str>>,
    pub kind: Option<Box<str>>,
    pub backfilling: bool,
    /// The name of the request that the Job carries out.
    pub backfill_id: Option<Box<str>>,
    pub made_from: MadeFrom,
    pub state: Option<Box<str>>,
    pub ended: Option<(JobResult, Timestamp)>,
}

impl Job {
    /// Returns none unless it is a Job of a stream or of a CronJob.
    pub fn of(raw: &RawJob) -> Option<Job> {
        let RawJob { metadata, spec, status } = raw;
        let owner = metadata.controller().cloned().map(Box::new);
        let labelled = metadata.label(STREAM_ID).is_some();
        let scheduled = owner.as_ref().is_some_and(|owner| owner.kind == "CronJob");
        if !labelled && !scheduled {
            return None;
        }
        Some(Job {
            object_name: metadata.object_name(),
            revision: metadata.revision(),
            created: metadata.creation_timestamp.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            stream: metadata.label(STREAM_ID).map(Box::from),
            kind: metadata.label(STREAM_KIND).map(Box::from),
            backfilling: metadata.label(BACKFILLING) == Some("true"),
            backfill_id: spec.variable("STREAMCONTEXT__BACKFILL_ID").map(Box::from),
            made_from: MadeFrom::of(metadata, spec),
            state: metadata.annotation(STATE).map(Box::from),
            ended: ended(status),
            owner,
            uid: metadata.uid.as_str().into(),
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
    pub owner: Option<Box<OwnerReference>>,
    pub made_from: MadeFrom,
    pub schedule: Box<str>,
    pub last_run: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
}

impl CronJob {
    /// Returns none unless it is a CronJob of a stream.
    pub fn of(raw: &RawCronJob) -> Option<CronJob> {
        let RawCronJob { metadata, spec, status } = raw;
        let made_from = MadeFrom::of(metadata, &spec.job.spec);
        made_from.hash.as_ref()?;
        Some(CronJob {
            object_name: metadata.object_name(),
            revision: metadata.revision(),
            deleting: metadata.deletion_timestamp.is_some(),
            owner: metadata.controller().cloned().map(Box::new),
            made_from,
            schedule: spec.schedule.as_str().into(),
            last_run: status.last_schedule_time,
            last_success: status.last_successful_time,
            uid: metadata.uid.as_str().into(),
        })
    }
}
