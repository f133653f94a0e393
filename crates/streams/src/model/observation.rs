//! Everything that a decision about one stream depends on.

use std::collections::HashMap;

use jiff::Timestamp;

use super::backfill_request::BackfillRequest;
use super::class::Class;
use super::job::{CronJob, Job, JobResult};
use super::meta::Revision;
use super::settings::Settings;
use super::stream::Stream;
use super::template::Template;
use super::{CrdVersion, Key, NamespacedName};

/// The last Job of a name that was deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct LastJob {
    pub uid: Box<str>,
    /// The uid of the stream that owned it; none if that stream's status named it.
    pub owner: Option<Box<str>>,
    /// How it ended; none if that has to be looked up.
    pub result: Option<JobResult>,
}

/// What is known of one stream and what it depends on.
#[derive(Debug)]
pub struct Observation<'a> {
    pub key: &'a Key,
    pub settings: &'a Settings,
    /// Since when this process leads.
    pub leading_since: Option<Timestamp>,
    /// When this process saw another operator's last write to the stream.
    pub foreign_write_seen: Option<Timestamp>,
    pub class: Option<&'a Class>,
    /// Whether all streams of the class are known.
    pub streams_listed: bool,
    pub stream: Option<&'a Stream>,
    /// The Job and the CronJob of the stream's name, including those of other owners.
    pub job: Option<&'a Job>,
    pub cron_job: Option<&'a CronJob>,
    pub last_job: Option<&'a LastJob>,
    /// How the last run of the CronJob ended, and when.
    pub last_run: Option<&'a (JobResult, Timestamp)>,
    /// The requests for the stream, the oldest first.
    pub requests: Vec<&'a BackfillRequest>,
    pub all_requests: &'a HashMap<NamespacedName, BackfillRequest>,
    pub templates: &'a HashMap<(CrdVersion, NamespacedName), Template>,
    pub secrets: &'a HashMap<NamespacedName, Revision>,
    /// Whether secrets have been listed, or are known not to be readable.
    pub secrets_listed: bool,
    pub running_backfills: usize,
    /// When the next Job may be restarted because of a change; none: now.
    pub restart_at: Option<Timestamp>,
}

impl<'a> Observation<'a> {
    /// Whether one more backfill may be started.
    pub fn may_start_backfill(&self) -> bool {
        self.settings.backfills_max.is_none_or(|max| self.running_backfills < max)
    }

    pub fn template(
        &self,
        crd_version: CrdVersion,
        object_name: &NamespacedName,
    ) -> Option<&'a Template> {
        self.templates.get(&(crd_version, object_name.clone()))
    }
}
