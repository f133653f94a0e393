//! An in-memory copy of the cluster's objects, fed by watches and by the responses to our own
//! writes. The newer revision of an object wins, so that neither source undoes the other.

mod foreign_writes;
mod read;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use self::foreign_writes::ForeignWrite;
use crate::model::backfill_request::BackfillRequest;
use crate::model::class::Class;
use crate::model::job::{CronJob, Job, JobResult};
use crate::model::meta::Revision;
use crate::model::observation::LastJob;
use crate::model::settings::Settings;
use crate::model::stream::Stream;
use crate::model::template::Template;
use crate::model::watch::{Object, Resource, WatchEvent};
use crate::model::{ClassName, CrdVersion, Key, NamespacedName};

#[derive(Debug, Default)]
pub struct Index {
    pub settings: Settings,
    /// Since when this process leads.
    pub leading_since: Option<Timestamp>,
    /// Counts changes of classes and streams.
    version: u64,
    classes: HashMap<ClassName, Arc<Class>>,
    streams: HashMap<Key, Arc<Stream>>,
    /// The last write of another operator to each stream.
    foreign_writes: HashMap<Key, ForeignWrite>,
    /// The classes whose streams have been listed.
    listed: HashSet<ClassName>,
    jobs: HashMap<NamespacedName, Job>,
    cron_jobs: HashMap<NamespacedName, CronJob>,
    /// The result of the last run of each CronJob.
    runs: HashMap<NamespacedName, (JobResult, Timestamp)>,
    requests: HashMap<NamespacedName, BackfillRequest>,
    /// The names of the requests for each stream name, the oldest first.
    requests_for: HashMap<NamespacedName, BTreeSet<(Timestamp, Arc<str>)>>,
    templates: HashMap<(CrdVersion, NamespacedName), Template>,
    secrets: HashMap<NamespacedName, Revision>,
    /// Secrets have been listed, or are not readable. They are watched only if a stream restarts on
    /// changes of them.
    secrets_listed: bool,
    last_job: HashMap<NamespacedName, LastJob>,
    /// Names of the streams whose backfills are running.
    running_backfills: HashSet<NamespacedName>,
    /// Streams whose backfills are held back by the limit.
    waiting: BTreeSet<Key>,
    /// The times of restarts because of changes, within the last minute.
    restarts: Vec<Timestamp>,
}

impl Index {
    pub fn new(settings: Settings) -> Index {
        Index { settings, ..Index::default() }
    }

    /// Applies a watch event. Returns the streams that it may affect.
    pub fn apply(&mut self, resource: &Resource, event: WatchEvent) -> Vec<Key> {
        match event {
            WatchEvent::Snapshot(objects) => self.replace_all(resource, objects),
            WatchEvent::Upserted(object) => self.upsert(*object),
            WatchEvent::Deleted(object_name, uid, _) => self.remove(resource, &object_name, &uid),
            WatchEvent::Error(_) => Vec::new(),
        }
    }

    /// Applies the current state of one object.
    pub fn upsert(&mut self, object: Object) -> Vec<Key> {
        match object {
            Object::Class(class) => {
                let name = class.name.clone();
                if self.classes.get(&name).is_some_and(|known| known.revision > class.revision) {
                    return Vec::new();
                }
                self.version += 1;
                let before = self.classes.insert(name.clone(), class.into());
                match (before, self.classes.get(&name)) {
                    (Some(before), Some(now)) if before.secret_refs == now.secret_refs => {
                        Vec::new()
                    }
                    _ => self.streams_of(&name),
                }
            }
            Object::Stream(stream) => {
                let key = stream.key.clone();
                let known = self.streams.get(&key);
                if known.is_some_and(|known| {
                    known.uid == stream.uid && known.revision >= stream.revision
                }) {
                    return Vec::new();
                }
                let replaced = known.is_some_and(|known| known.uid != stream.uid);
                if replaced {
                    self.last_job.remove(&key.object_name);
                }
                self.version += 1;
                self.streams.insert(key.clone(), stream.into());
                vec![key]
            }
            Object::Job(job) => self.upsert_job(job),
            Object::CronJob(cron_job) => {
                let object_name = cron_job.object_name.clone();
                let known = self.cron_jobs.get(&object_name);
                if known.is_some_and(|known| {
                    known.uid == cron_job.uid && known.revision >= cron_job.revision
                }) {
                    return Vec::new();
                }
                let key = self.key_of_owner(&object_name, cron_job.owner.as_deref());
                self.cron_jobs.insert(object_name, cron_job);
                key.into_iter().collect()
            }
            Object::BackfillRequest(request) => {
                let object_name = request.object_name.clone();
                let known = self.requests.get(&object_name);
                if known.is_some_and(|known| {
                    known.uid == request.uid && known.revision >= request.revision
                }) {
                    return Vec::new();
                }
                let key = stream_key(&request);
                let names = self.requests_for.entry(key.object_name.clone()).or_default();
                names.insert((request.created, object_name.name.clone()));
                self.requests.insert(object_name, request);
                vec![key]
            }
            Object::Template(template) => self.upsert_template(template),
            Object::Secret(object_name, revision) => {
                match self.secrets.insert(object_name.clone(), revision) {
                    Some(before) if before != revision => {
                        self.users_of_secrets(|user| user.namespace == object_name.namespace)
                    }
                    _ => Vec::new(),
                }
            }
        }
    }

    fn upsert_job(&mut self, job: Job) -> Vec<Key> {
        let object_name = job.object_name.clone();
        if job.owner.as_ref().is_some_and(|owner| owner.kind == "CronJob") {
            return self.record_run(&job);
        }
        if self.last_job.get(&object_name).is_some_and(|last_job| last_job.uid == job.uid) {
            return Vec::new();
        }
        let known = self.jobs.get(&object_name);
        let older = |known: &Job| {
            if known.uid == job.uid {
                known.revision >= job.revision
            } else {
                known.created > job.created
            }
        };
        if known.is_some_and(older) {
            return Vec::new();
        }
        // Kubernetes counts pods in the Job, which affects no decision.
        if let Some(known) = self.jobs.get_mut(&object_name) {
            known.revision = job.revision;
            if *known == job {
                return Vec::new();
            }
        }
        if let Some(before) = self.jobs.remove(&object_name).filter(|before| before.uid != job.uid)
        {
            self.remember_last_job(&object_name, before);
        }
        let active = job.backfilling && job.ended.is_none();
        let mut affected = self.set_backfill_running(&object_name, active);
        affected.extend(self.key_of(&job));
        self.jobs.insert(object_name, job);
        affected
    }

    /// Records the result of a CronJob's run.
    fn record_run(&mut self, job: &Job) -> Vec<Key> {
        let (Some((result, at)), Some(owner)) = (&job.ended, &job.owner) else { return Vec::new() };
        let object_name = NamespacedName::new(&job.object_name.namespace, &owner.name);
        if self.runs.get(&object_name).is_some_and(|(_, last)| last >= at) {
            return Vec::new();
        }
        self.runs.insert(object_name.clone(), (result.clone(), *at));
        let owner = self.cron_jobs.get(&object_name).and_then(|cron_job| cron_job.owner.as_deref());
        self.key_of_owner(&object_name, owner).into_iter().collect()
    }

    /// Records whether a backfill is running. Returns the waiting streams that may start one
    /// instead.
    fn set_backfill_running(&mut self, object_name: &NamespacedName, active: bool) -> Vec<Key> {
        if active {
            self.running_backfills.insert(object_name.clone());
            return Vec::new();
        }
        if !self.running_backfills.remove(object_name) {
            return Vec::new();
        }
        let max = self.settings.backfills_max.unwrap_or(usize::MAX);
        let free = max.saturating_sub(self.running_backfills.len());
        self.waiting.iter().take(free).cloned().collect()
    }

    /// Reserves a slot for a backfill, under the lock of the decision, so that two streams cannot
    /// take the last one.
    pub fn reserve_backfill(&mut self, object_name: &NamespacedName) {
        self.running_backfills.insert(object_name.clone());
    }

    /// Releases the slot of a backfill that was not started.
    pub fn release_backfill(&mut self, object_name: &NamespacedName) -> Vec<Key> {
        let active = |job: &Job| job.backfilling && job.ended.is_none();
        if self.jobs.get(object_name).is_some_and(active) {
            Vec::new()
        } else {
            self.set_backfill_running(object_name, false)
        }
    }

    fn remember_last_job(&mut self, object_name: &NamespacedName, job: Job) {
        let result = Some(job.ended.map_or(JobResult::Removed, |(result, _)| result));
        let owner = job.owner.map(|owner| owner.uid.into());
        self.last_job.insert(object_name.clone(), LastJob { uid: job.uid, owner, result });
    }

    fn upsert_template(&mut self, template: Template) -> Vec<Key> {
        let key = (template.crd_version, template.object_name.clone());
        if self.templates.get(&key).is_some_and(|known| known.revision >= template.revision) {
            return Vec::new();
        }
        self.templates.insert(key.clone(), template);
        self.users_of(key.0, &key.1)
    }

    fn users_of(&self, crd_version: CrdVersion, template: &NamespacedName) -> Vec<Key> {
        let uses = |stream: &Stream| {
            let Ok(execution) = &stream.execution else { return false };
            execution.backfill.as_ref() == Some(template)
                || execution.backend.as_ref().is_some_and(|b| b.template() == template)
        };
        let of_line =
            |key: &Key| self.classes.get(&key.class).is_some_and(|c| c.crd_version == crd_version);
        let users = self.streams.values().filter(|stream| uses(stream) && of_line(&stream.key));
        users.map(|stream| stream.key.clone()).collect()
    }

    fn users_of_secrets(&self, of: impl Fn(&NamespacedName) -> bool) -> Vec<Key> {
        let users = self.streams.values();
        let users =
            users.filter(|stream| stream.annotations.on_secrets && of(&stream.key.object_name));
        users.map(|stream| stream.key.clone()).collect()
    }

    /// Marks secrets as listed or not readable. Returns the streams that waited for that.
    pub fn mark_secrets_listed(&mut self) -> Vec<Key> {
        if std::mem::replace(&mut self.secrets_listed, true) {
            Vec::new()
        } else {
            self.users_of_secrets(|_| true)
        }
    }

    fn replace_all(&mut self, resource: &Resource, objects: Vec<Object>) -> Vec<Key> {
        let identity = |object: &Object| {
            let (object_name, uid, _) = object.identity();
            (object_name, uid)
        };
        let there: HashSet<(NamespacedName, Box<str>)> = objects.iter().map(identity).collect();
        let missing = |object_name: &NamespacedName, uid: &str| {
            !there.contains(&(object_name.clone(), uid.into()))
        };
        let mut lost: Vec<(NamespacedName, Box<str>)> = Vec::new();
        let mut lose = |object_name: &NamespacedName, uid: &str| {
            if missing(object_name, uid) {
                lost.push((object_name.clone(), uid.into()));
            }
        };
        match resource {
            Resource::Classes(crd_version) => {
                for class in self.classes.values().filter(|class| class.crd_version == *crd_version)
                {
                    lose(&class.object_name(), &class.uid);
                }
            }
            Resource::Streams(class) => {
                let of = self.streams.values().filter(|stream| stream.key.class == class.name);
                of.for_each(|stream| lose(&stream.key.object_name, &stream.uid));
            }
            Resource::Jobs => self.jobs.values().for_each(|job| lose(&job.object_name, &job.uid)),
            Resource::CronJobs => self
                .cron_jobs
                .values()
                .for_each(|cron_job| lose(&cron_job.object_name, &cron_job.uid)),
            Resource::BackfillRequests => {
                self.requests.values().for_each(|request| lose(&request.object_name, &request.uid));
            }
            Resource::Templates(crd_version) => {
                let of = self.templates.keys().filter(|(of, _)| of == crd_version);
                of.for_each(|(_, object_name)| lose(object_name, ""));
            }
            Resource::Secrets => self.secrets.keys().for_each(|object_name| lose(object_name, "")),
            Resource::Events => {}
        }
        let mut affected = Vec::new();
        for (object_name, uid) in lost {
            affected.extend(self.remove(resource, &object_name, &uid));
            // The deletion was not observed, so the result is unknown unless the end was seen
            // before.
            if *resource == Resource::Jobs
                && let Some(last_job) = self.last_job.get_mut(&object_name)
                && last_job.uid == uid
                && last_job.result == Some(JobResult::Removed)
            {
                last_job.result = None;
            }
        }
        for object in objects {
            affected.extend(self.upsert(object));
        }
        if let Resource::Streams(class) = resource
            && self.listed.insert(class.name.clone())
        {
            affected.extend(self.missing(|name| *name == *class.name));
        }
        affected
    }

    fn remove(&mut self, resource: &Resource, object_name: &NamespacedName, uid: &str) -> Vec<Key> {
        match resource {
            Resource::Classes(crd_version) => {
                let name: ClassName = match crd_version {
                    CrdVersion::V1 => object_name.name.clone(),
                    CrdVersion::V1Beta1 => object_name.to_string().into(),
                };
                if self.classes.get(&name).is_some_and(|class| class.uid == uid) {
                    self.version += 1;
                    self.classes.remove(&name);
                }
                Vec::new()
            }
            Resource::Streams(class) => {
                let key = Key { class: class.name.clone(), object_name: object_name.clone() };
                if self.streams.get(&key).is_none_or(|stream| *stream.uid != *uid) {
                    return Vec::new();
                }
                self.version += 1;
                self.streams.remove(&key);
                self.foreign_writes.remove(&key);
                self.waiting.remove(&key);
                self.last_job.remove(object_name);
                vec![key]
            }
            Resource::Jobs => {
                if self.jobs.get(object_name).is_none_or(|job| *job.uid != *uid) {
                    return Vec::new();
                }
                let Some(job) = self.jobs.remove(object_name) else { return Vec::new() };
                let mut affected = self.set_backfill_running(object_name, false);
                affected.extend(self.key_of(&job));
                if affected.iter().any(|key| self.streams.contains_key(key)) {
                    self.remember_last_job(object_name, job);
                }
                affected
            }
            Resource::CronJobs => {
                if self.cron_jobs.get(object_name).is_none_or(|cron_job| *cron_job.uid != *uid) {
                    return Vec::new();
                }
                self.runs.remove(object_name);
                let owner = self.cron_jobs.remove(object_name).and_then(|cron_job| cron_job.owner);
                self.key_of_owner(object_name, owner.as_deref()).into_iter().collect()
            }
            Resource::BackfillRequests => {
                if self.requests.get(object_name).is_none_or(|request| request.uid != *uid) {
                    return Vec::new();
                }
                let Some(request) = self.requests.remove(object_name) else { return Vec::new() };
                let key = stream_key(&request);
                if let Some(names) = self.requests_for.get_mut(&key.object_name) {
                    names.remove(&(request.created, object_name.name.clone()));
                    if names.is_empty() {
                        self.requests_for.remove(&key.object_name);
                    }
                }
                vec![key]
            }
            Resource::Templates(crd_version) => {
                self.templates.remove(&(*crd_version, object_name.clone()));
                Vec::new()
            }
            Resource::Secrets => {
                self.secrets.remove(object_name);
                Vec::new()
            }
            Resource::Events => Vec::new(),
        }
    }

    /// Records the result of a Job that was looked up.
    pub fn record_job_result(
        &mut self,
        object_name: &NamespacedName,
        uid: &str,
        result: JobResult,
    ) {
        self.last_job.insert(
            object_name.clone(),
            LastJob { uid: uid.into(), owner: None, result: Some(result) },
        );
    }

    /// Records whether a stream waits for a backfill slot.
    pub fn set_waiting(&mut self, key: &Key, set_waiting: bool) {
        if set_waiting {
            self.waiting.insert(key.clone())
        } else {
            self.waiting.remove(key)
        };
    }

    /// Records a restart because of a change.
    pub fn record_restart(&mut self, now: Timestamp) {
        self.restarts.retain(|at| now.duration_since(*at).as_secs() < 60);
        self.restarts.push(now);
    }

    /// Removes the streams of a class that is no longer watched.
    pub fn remove_streams(&mut self, class: &str) {
        self.version += 1;
        self.listed.remove(class);
        self.streams.retain(|key, _| *key.class != *class);
        self.foreign_writes.retain(|key, _| *key.class != *class);
        self.waiting.retain(|key| *key.class != *class);
    }
}

/// The key of the stream that a request names.
fn stream_key(request: &BackfillRequest) -> Key {
    Key {
        class: request.class.as_str().into(),
        object_name: NamespacedName::new(&request.object_name.namespace, &request.stream),
    }
}
