//! Bulk jobs and their shards, as objects.
//!
//! A job names what is to be read. When its containers are known it has shards, each of which is read
//! by one replica at a time. A shard has its containers in the blob [`MEMBERS`] and what came out in
//! the blob [`RESULTS`], one [`ResultLine`] for each container.

use kernel::typed::Kind;
use kernel::{Key, Timestamp, labels};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bulk::BulkRequest;
use super::experiment::{Experiment, Figures};
use super::inventory::{Attribution, Member};
use super::notification::Notification;

pub const JOB: &str = "bulk-job";
pub const SHARD: &str = "bulk-shard";

/// The blob of a job with all that discovery found: [`super::plan::Plan`].
pub const PLAN: &str = "plan";
/// The blob of a job with its metadata, as the wire shows it.
pub const METADATA: &str = "metadata";
/// The blob of a shard with its containers, as JSON: `Vec<Member>`.
pub const MEMBERS: &str = "members";
/// The blob of a shard, or of an experiment that was recommended alone: lines of [`ResultLine`].
pub const RESULTS: &str = "results";

/// What is requested of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkJob {
    pub request: BulkRequest,
    #[serde(default)]
    pub cancelled: bool,
    /// To be removed with its shards, as soon as they have ended.
    #[serde(default)]
    pub deleted: bool,
}

labels! {
    pub enum JobPhase {
        /// Too many jobs of its organisation are running.
        Queued = "queued",
        Discovering = "discovering",
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl JobPhase {
    pub fn is_final(self) -> bool {
        matches!(self, JobPhase::Completed | JobPhase::Failed | JobPhase::Cancelled)
    }

    /// As the existing service names it.
    pub fn wire(self) -> &'static str {
        match self {
            JobPhase::Queued | JobPhase::Discovering | JobPhase::Running => "IN_PROGRESS",
            JobPhase::Completed => "COMPLETED",
            JobPhase::Failed | JobPhase::Cancelled => "FAILED",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Containers that were found.
    #[serde(default)]
    pub total: u32,
    /// Containers that were read, those that failed included. Never falls.
    #[serde(default)]
    pub processed: u32,
    #[serde(default)]
    pub failed: u32,
    /// Experiments that were there before the job.
    #[serde(default)]
    pub existing: u32,
    #[serde(default)]
    pub shards: u32,
    /// The end of the window of all its recommendations, in milliseconds: the same for each shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_end_ms: Option<i64>,
    #[serde(default)]
    pub with_recording_rules: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<JobNotice>,
    /// The last notice says why it fails. It ends when its shards have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failing: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it got its place among the jobs of its organisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Whether its webhook knows that it has ended; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Notification>,
}

/// The event of a job that is going to fail, which comes before its last one.
pub const FAILING: &str = "failing";

/// A notification of a job, as the existing service has them: under a key that looks like a status of
/// HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNotice {
    pub key: u16,
    pub code: u16,
    /// `ERROR`, `WARNING` or `INFO`.
    #[serde(rename = "type")]
    pub level: String,
    pub message: String,
}

impl JobNotice {
    pub fn error(key: u16, code: u16, message: impl Into<String>) -> JobNotice {
        JobNotice { key, code, level: "ERROR".into(), message: message.into() }
    }

    pub fn info(key: u16, code: u16, message: impl Into<String>) -> JobNotice {
        JobNotice { key, code, level: "INFO".into(), message: message.into() }
    }

    pub fn warning(key: u16, code: u16, message: impl Into<String>) -> JobNotice {
        JobNotice { key, code, level: "WARNING".into(), message: message.into() }
    }
}

impl Kind for BulkJob {
    type Phase = JobPhase;
    type Status = JobStatus;
}

/// What is requested of a shard: its place in its job, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkShard {
    pub job: String,
    pub attribution: Attribution,
    /// As in [`super::plan::Shard`].
    pub narrow: bool,
}

labels! {
    pub enum ShardPhase {
        /// For its turn.
        Waiting = "waiting",
        Reading = "reading",
        Done = "done",
        Failed = "failed",
        /// The job was cancelled first.
        Cancelled = "cancelled",
    }
}

impl ShardPhase {
    pub fn is_final(self) -> bool {
        !matches!(self, ShardPhase::Waiting | ShardPhase::Reading)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardStatus {
    #[serde(default)]
    pub processed: u32,
    #[serde(default)]
    pub failed: u32,
    #[serde(default)]
    pub existing: u32,
    /// Why the data source could not be read at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Kind for BulkShard {
    type Phase = ShardPhase;
    type Status = ShardStatus;
}

pub fn job_key(id: &str) -> Key {
    Key::new(JOB, id)
}

/// The shards of a job are numbered from 0.
pub fn shard_key(job: &str, number: usize) -> Key {
    Key::new(SHARD, &format!("{job}.{number}"))
}

/// The job that a shard is of; none if the key is not that of a shard.
pub fn job_of_shard(key: &Key) -> Option<&str> {
    let (job, _) = (key.kind() == SHARD).then(|| key.id().rsplit_once('.'))??;
    Some(job)
}

/// Where a result is: the blob [`RESULTS`] of this object, and the line in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRef {
    pub of: Key,
    pub line: u32,
    /// The end of the window, in milliseconds.
    pub end_ms: i64,
}

/// What came out for one experiment. `recommendation` is an element of `listRecommendations`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResultLine<'a> {
    pub experiment: Experiment,
    /// Whether the experiment was there before.
    #[serde(default)]
    pub existing: bool,
    pub member: Option<Member>,
    pub at: Timestamp,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<&'a RawValue>,
    /// The numbers of the recommendation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
    /// Why there is no recommendation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
