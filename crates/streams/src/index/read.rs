//! What the index can be asked.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Index, Past, asked_for};
use crate::model::class::Class;
use crate::model::job::{Cron, Fate, Job};
use crate::model::meta::Revision;
use crate::model::request::Request;
use crate::model::stream::Stream;
use crate::model::template::Template;
use crate::model::{Key, Line, Place};

impl Index {
    /// When a Job may be started anew; none: now.
    pub fn restart_at(&self, now: Timestamp) -> Option<Timestamp> {
        let max = self.settings.restarts_per_minute?;
        let recent: Vec<&Timestamp> =
            self.restarts.iter().filter(|at| now.duration_since(**at).as_secs() < 60).collect();
        if recent.len() < max {
            return None;
        }
        let first = recent.iter().min()?;
        first.checked_add(jiff::SignedDuration::from_secs(60)).ok()
    }

    /// Whether one more backfill may be started.
    pub fn backfill_allowed(&self) -> bool {
        self.settings.backfills_max.is_none_or(|max| self.backfills.len() < max)
    }

    pub fn backfills(&self) -> usize {
        self.backfills.len()
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

    /// All that may have to be looked at: streams, and what requests are for that is not there.
    pub fn everyone(&self) -> Vec<Key> {
        let missing = self.missing(|_| true);
        self.streams.keys().cloned().chain(missing).collect()
    }

    /// What requests of some classes are for, and is not there.
    pub(super) fn missing(&self, of: impl Fn(&str) -> bool) -> HashSet<Key> {
        let requests = self.requests.values().filter(|request| of(&request.class));
        let keys = requests.map(asked_for);
        keys.filter(|key| !self.streams.contains_key(key)).collect()
    }

    /// Whether all streams of a class are known.
    pub fn is_listed(&self, class: &str) -> bool {
        self.listed.contains(class)
    }

    /// Whether what there is to know of its secrets is known, if that is of interest.
    pub fn knows_secrets_for(&self, stream: &Stream) -> bool {
        self.secrets_settled || !stream.wishes.on_secrets
    }

    pub fn job_at(&self, place: &Place) -> Option<&Job> {
        self.jobs.get(place)
    }

    pub fn cron_at(&self, place: &Place) -> Option<&Cron> {
        self.crons.get(place)
    }

    pub fn last_run(&self, place: &Place) -> Option<&(Fate, Timestamp)> {
        self.runs.get(place)
    }

    pub fn past(&self, place: &Place) -> Option<&Past> {
        self.past.get(place)
    }

    pub fn template_at(&self, line: Line, place: &Place) -> Option<&Template> {
        self.templates.get(&(line, place.clone()))
    }

    pub fn secret(&self, place: &Place) -> Option<Revision> {
        self.secrets.get(place).copied()
    }

    pub fn request(&self, place: &Place) -> Option<&Request> {
        self.requests.get(place)
    }

    /// The requests for a stream, the oldest first.
    pub fn requests<'i>(&'i self, key: &'i Key) -> impl Iterator<Item = &'i Request> {
        let names = self.requests_for.get(&key.place).into_iter().flatten();
        let at =
            |name: &Arc<str>| Place { namespace: key.place.namespace.clone(), name: name.clone() };
        let all = names.filter_map(move |(_, name)| self.requests.get(&at(name)));
        all.filter(|request| *request.class == *key.class)
    }

    /// The class of a kind in a namespace.
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
        Some(Key { class: class.name.clone(), place: Place::new(namespace, name) })
    }

    pub(super) fn key_of(&self, job: &Job) -> Option<Key> {
        let owner = job.owner.as_ref().map(|owner| owner.kind.as_str());
        self.key(job.kind.as_deref().or(owner)?, &job.place.namespace, &job.place.name)
    }
}
