//! Reads of the index.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use kubernetes::OwnerReference;

use super::{Index, stream_key};
use crate::model::backfill_request::BackfillRequest;
use crate::model::class::Class;
use crate::model::job::{CronJob, Job};
use crate::model::observation::Observation;
use crate::model::stream::Stream;
use crate::model::{Key, NamespacedName};

impl Index {
    /// Collects what a decision about a stream depends on.
    pub fn observe<'a>(&'a self, key: &'a Key, now: Timestamp) -> Observation<'a> {
        Observation {
            key,
            settings: &self.settings,
            leading_since: self.leading_since,
            foreign_write_seen: self.foreign_write_seen(key),
            class: self.classes.get(&key.class).map(|class| &**class),
            streams_listed: self.listed.contains(&key.class),
            stream: self.streams.get(key).map(|stream| &**stream),
            job: self.jobs.get(&key.object_name),
            cron_job: self.cron_jobs.get(&key.object_name),
            last_job: self.last_job.get(&key.object_name),
            last_run: self.runs.get(&key.object_name),
            requests: self.requests(key).collect(),
            all_requests: &self.requests,
            templates: &self.templates,
            secrets: &self.secrets,
            secrets_listed: self.secrets_listed,
            running_backfills: self.running_backfills.len(),
            restart_at: self.restart_at(now),
        }
    }

    /// When another operator's last write to a stream was seen, if after the first list.
    pub fn foreign_write_seen(&self, key: &Key) -> Option<Timestamp> {
        self.foreign_writes.get(key)?.seen
    }

    /// When a Job may be restarted because of a change; none: now.
    fn restart_at(&self, now: Timestamp) -> Option<Timestamp> {
        let max = self.settings.restarts_per_minute?;
        let recent: Vec<&Timestamp> =
            self.restarts.iter().filter(|at| now.duration_since(**at).as_secs() < 60).collect();
        if recent.len() < max {
            return None;
        }
        let first = recent.iter().min()?;
        first.checked_add(jiff::SignedDuration::from_secs(60)).ok()
    }

    pub fn running_backfills(&self) -> usize {
        self.running_backfills.len()
    }

    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name)
    }

    pub fn classes(&self) -> impl Iterator<Item = &Arc<Class>> {
        self.classes.values()
    }

    pub fn stream(&self, key: &Key) -> Option<&Arc<Stream>> {
        self.streams.get(key)
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn streams(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.streams.values()
    }

    pub fn streams_of(&self, class: &str) -> Vec<Key> {
        let of = self.streams.keys().filter(|key| *key.class == *class);
        of.cloned().collect()
    }

    /// The keys of all streams, and of missing streams that requests name.
    pub fn all_keys(&self) -> Vec<Key> {
        let missing = self.missing(|_| true);
        self.streams.keys().cloned().chain(missing).collect()
    }

    /// The missing streams that requests of some classes name.
    pub(super) fn missing(&self, of: impl Fn(&str) -> bool) -> HashSet<Key> {
        let requests = self.requests.values().filter(|request| of(&request.class));
        let keys = requests.map(stream_key);
        keys.filter(|key| !self.streams.contains_key(key)).collect()
    }

    pub fn job(&self, object_name: &NamespacedName) -> Option<&Job> {
        self.jobs.get(object_name)
    }

    pub fn cron_job(&self, object_name: &NamespacedName) -> Option<&CronJob> {
        self.cron_jobs.get(object_name)
    }

    pub fn request(&self, object_name: &NamespacedName) -> Option<&BackfillRequest> {
        self.requests.get(object_name)
    }

    /// The requests for a stream, the oldest first.
    pub fn requests<'i>(&'i self, key: &'i Key) -> impl Iterator<Item = &'i BackfillRequest> {
        let names = self.requests_for.get(&key.object_name).into_iter().flatten();
        let at = |name: &Arc<str>| NamespacedName {
            namespace: key.object_name.namespace.clone(),
            name: name.clone(),
        };
        let all = names.filter_map(move |(_, name)| self.requests.get(&at(name)));
        all.filter(|request| *request.class == *key.class)
    }

    /// The class that names a kind in a namespace.
    pub fn class_of(&self, kind: &str, namespace: &str) -> Option<&Arc<Class>> {
        let here = |class: &&Arc<Class>| class.namespace.as_deref().is_none_or(|n| n == namespace);
        self.classes
            .values()
            .filter(|class| *class.kind == *kind)
            .filter(here)
            .min_by_key(|c| &c.name)
    }

    pub(super) fn key(&self, kind: &str, namespace: &str, name: &str) -> Option<Key> {
        let class = self.class_of(kind, namespace)?;
        Some(Key { class: class.name.clone(), object_name: NamespacedName::new(namespace, name) })
    }

    /// The key of the stream that owns a CronJob.
    pub(super) fn key_of_owner(
        &self,
        cron_job: &NamespacedName,
        owner: Option<&OwnerReference>,
    ) -> Option<Key> {
        let owner = owner?;
        self.key(&owner.kind, &cron_job.namespace, &owner.name)
    }

    pub(super) fn key_of(&self, job: &Job) -> Option<Key> {
        let owner = job.owner.as_ref().map(|owner| owner.kind.as_str());
        self.key(job.kind.as_deref().or(owner)?, &job.object_name.namespace, &job.object_name.name)
    }
}
