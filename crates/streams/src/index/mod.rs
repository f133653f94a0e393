//! A plain picture of the cluster, changed by what watches tell and by the answers to our own
//! writes. The newer of two sayings about one object counts, so that none undoes the other.

mod read;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{Object, Told, Watched};
use crate::model::class::Class;
use crate::model::job::{Cron, Fate, Job};
use crate::model::meta::Revision;
use crate::model::request::Request;
use crate::model::settings::Settings;
use crate::model::stream::Stream;
use crate::model::template::Template;
use crate::model::{ClassName, Key, Line, Place};

/// The last Job that stood at a place and is gone: its uid, and how it ended if that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    pub uid: Box<str>,
    /// The uid of the stream that it belonged to; none if that stream's status named it.
    pub owner: Option<Box<str>>,
    pub fate: Option<Fate>,
}

#[derive(Debug, Default)]
pub struct Index {
    pub settings: Settings,
    /// Since when this process is the one that acts.
    pub leading_since: Option<Timestamp>,
    /// Grows with every change of a class or a stream.
    version: u64,
    classes: HashMap<ClassName, Arc<Class>>,
    streams: HashMap<Key, Arc<Stream>>,
    /// The classes of which all streams are known.
    listed: HashSet<ClassName>,
    jobs: HashMap<Place, Job>,
    crons: HashMap<Place, Cron>,
    /// How the last run of a schedule ended.
    runs: HashMap<Place, (Fate, Timestamp)>,
    requests: HashMap<Place, Request>,
    /// The names of the requests for what is called so, the oldest first.
    requests_for: HashMap<Place, BTreeSet<(Timestamp, Arc<str>)>>,
    templates: HashMap<(Line, Place), Template>,
    secrets: HashMap<Place, Revision>,
    /// Secrets are known, as far as they may be: they are asked for only when someone wants to be
    /// started anew with them.
    secrets_settled: bool,
    past: HashMap<Place, Past>,
    /// Backfills that are running.
    backfills: HashSet<Place>,
    /// Streams that would start one if fewer were.
    waiting: BTreeSet<Key>,
    /// When Jobs were started anew because of a change, within the last minute.
    restarts: Vec<Timestamp>,
}

impl Index {
    pub fn new(settings: Settings) -> Index {
        Index { settings, ..Index::default() }
    }

    /// Takes in what a watch tells; the streams that it may matter to.
    pub fn told(&mut self, watched: &Watched, told: Told) -> Vec<Key> {
        match told {
            Told::All(objects) => self.all(watched, objects),
            Told::Is(object) => self.one(watched, *object),
            Told::Gone(place, uid, _) => self.gone(watched, &place, &uid),
            Told::Trouble(_) => Vec::new(),
        }
    }

    fn one(&mut self, watched: &Watched, object: Object) -> Vec<Key> {
        match (watched, object) {
            (Watched::Templates(line), Object::Template(template)) => {
                self.template(*line, template)
            }
            (_, object) => self.learnt(object),
        }
    }

    /// Takes in one object as it is now.
    pub fn learnt(&mut self, object: Object) -> Vec<Key> {
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
                    self.past.remove(&key.place);
                }
                self.version += 1;
                self.streams.insert(key.clone(), stream.into());
                vec![key]
            }
            Object::Job(job) => self.job(job),
            Object::Cron(cron) => {
                let place = cron.place.clone();
                let known = self.crons.get(&place);
                if known
                    .is_some_and(|known| known.uid == cron.uid && known.revision >= cron.revision)
                {
                    return Vec::new();
                }
                let key = cron
                    .owner
                    .as_ref()
                    .and_then(|owner| self.key(&owner.kind, &place.namespace, &owner.name));
                self.crons.insert(place, cron);
                key.into_iter().collect()
            }
            Object::Request(request) => {
                let place = request.place.clone();
                let known = self.requests.get(&place);
                if known.is_some_and(|known| {
                    known.uid == request.uid && known.revision >= request.revision
                }) {
                    return Vec::new();
                }
                let key = asked_for(&request);
                let names = self.requests_for.entry(key.place.clone()).or_default();
                names.insert((request.created, place.name.clone()));
                self.requests.insert(place, request);
                vec![key]
            }
            // Nobody writes templates but users, and those are told with their line.
            Object::Template(_) => Vec::new(),
            Object::Secret(place, revision) => match self.secrets.insert(place.clone(), revision) {
                Some(before) if before != revision => {
                    self.users_of_secrets(|user| user.namespace == place.namespace)
                }
                _ => Vec::new(),
            },
        }
    }

    fn job(&mut self, job: Job) -> Vec<Key> {
        let place = job.place.clone();
        if job.owner.as_ref().is_some_and(|owner| owner.kind == "CronJob") {
            return self.run(&job);
        }
        if self.past.get(&place).is_some_and(|past| past.uid == job.uid) {
            return Vec::new();
        }
        let known = self.jobs.get(&place);
        let older = |known: &Job| match known.uid == job.uid {
            true => known.revision >= job.revision,
            false => known.created > job.created,
        };
        if known.is_some_and(older) {
            return Vec::new();
        }
        // Kubernetes counts pods in it, which changes nothing for anyone here.
        if let Some(known) = self.jobs.get_mut(&place) {
            known.revision = job.revision;
            if *known == job {
                return Vec::new();
            }
        }
        if let Some(before) = self.jobs.remove(&place).filter(|before| before.uid != job.uid) {
            self.remember(&place, before);
        }
        let active = job.backfilling && job.ended.is_none();
        let mut touched = self.counted(&place, active);
        touched.extend(self.key_of(&job));
        self.jobs.insert(place, job);
        touched
    }

    /// A run of a schedule: only how the last one ended is kept.
    fn run(&mut self, job: &Job) -> Vec<Key> {
        let (Some((fate, at)), Some(owner)) = (&job.ended, &job.owner) else { return Vec::new() };
        let place = Place::new(&job.place.namespace, &owner.name);
        if self.runs.get(&place).is_some_and(|(_, last)| last >= at) {
            return Vec::new();
        }
        self.runs.insert(place.clone(), (fate.clone(), *at));
        let owner = self.crons.get(&place).and_then(|cron| cron.owner.as_ref());
        let key = owner.and_then(|owner| self.key(&owner.kind, &place.namespace, &owner.name));
        key.into_iter().collect()
    }

    /// Counts a place among the running backfills or not; those who may start one instead are
    /// touched.
    fn counted(&mut self, place: &Place, active: bool) -> Vec<Key> {
        if active {
            self.backfills.insert(place.clone());
            return Vec::new();
        }
        if !self.backfills.remove(place) {
            return Vec::new();
        }
        let max = self.settings.backfills_max.unwrap_or(usize::MAX);
        let free = max.saturating_sub(self.backfills.len());
        self.waiting.iter().take(free).cloned().collect()
    }

    /// A backfill is about to be started. Called with the lock under which that was decided, so
    /// that no two take the last room.
    pub fn reserve_backfill(&mut self, place: &Place) {
        self.backfills.insert(place.clone());
    }

    /// It was not started after all.
    pub fn release_backfill(&mut self, place: &Place) -> Vec<Key> {
        let active = |job: &Job| job.backfilling && job.ended.is_none();
        match self.jobs.get(place).is_some_and(active) {
            true => Vec::new(),
            false => self.counted(place, false),
        }
    }

    fn remember(&mut self, place: &Place, job: Job) {
        let fate = Some(job.ended.map_or(Fate::Gone, |(fate, _)| fate));
        let owner = job.owner.map(|owner| owner.uid.into());
        self.past.insert(place.clone(), Past { uid: job.uid, owner, fate });
    }

    fn template(&mut self, line: Line, template: Template) -> Vec<Key> {
        let place = (line, template.place.clone());
        if self.templates.get(&place).is_some_and(|known| known.revision >= template.revision) {
            return Vec::new();
        }
        self.templates.insert(place.clone(), template);
        self.users_of(line, &place.1)
    }

    fn users_of(&self, line: Line, template: &Place) -> Vec<Key> {
        let uses = |stream: &Stream| {
            let Ok(execution) = &stream.execution else { return false };
            execution.backfill.as_ref() == Some(template)
                || execution.backend.as_ref().is_some_and(|b| b.template() == template)
        };
        let of_line = |key: &Key| self.classes.get(&key.class).is_some_and(|c| c.line == line);
        let users = self.streams.values().filter(|stream| uses(stream) && of_line(&stream.key));
        users.map(|stream| stream.key.clone()).collect()
    }

    fn users_of_secrets(&self, of: impl Fn(&Place) -> bool) -> Vec<Key> {
        let users = self.streams.values();
        let users = users.filter(|stream| stream.wishes.on_secrets && of(&stream.key.place));
        users.map(|stream| stream.key.clone()).collect()
    }

    /// All secrets have been told, or it is known that they will not be: who waited for that.
    pub fn settle_secrets(&mut self) -> Vec<Key> {
        match std::mem::replace(&mut self.secrets_settled, true) {
            true => Vec::new(),
            false => self.users_of_secrets(|_| true),
        }
    }

    fn all(&mut self, watched: &Watched, objects: Vec<Object>) -> Vec<Key> {
        let there: HashSet<(Place, Box<str>)> = objects.iter().map(identity).collect();
        let missing = |place: &Place, uid: &str| !there.contains(&(place.clone(), uid.into()));
        let mut lost: Vec<(Place, Box<str>)> = Vec::new();
        let mut lose = |place: &Place, uid: &str| {
            if missing(place, uid) {
                lost.push((place.clone(), uid.into()));
            }
        };
        match watched {
            Watched::Classes(line) => {
                for class in self.classes.values().filter(|class| class.line == *line) {
                    lose(&class_place(&class.name), &class.uid);
                }
            }
            Watched::Streams(class) => {
                let of = self.streams.values().filter(|stream| stream.key.class == class.name);
                of.for_each(|stream| lose(&stream.key.place, &stream.uid));
            }
            Watched::Jobs => self.jobs.values().for_each(|job| lose(&job.place, &job.uid)),
            Watched::Crons => self.crons.values().for_each(|cron| lose(&cron.place, &cron.uid)),
            Watched::Requests => {
                self.requests.values().for_each(|request| lose(&request.place, &request.uid));
            }
            Watched::Templates(line) => {
                let of = self.templates.keys().filter(|(of, _)| of == line);
                of.for_each(|(_, place)| lose(place, ""));
            }
            Watched::Secrets => self.secrets.keys().for_each(|place| lose(place, "")),
        }
        let mut touched = Vec::new();
        for (place, uid) in lost {
            touched.extend(self.gone(watched, &place, &uid));
            // It went unseen, so how it ended is not known unless that was seen before.
            if *watched == Watched::Jobs
                && let Some(past) = self.past.get_mut(&place)
                && past.uid == uid
                && past.fate == Some(Fate::Gone)
            {
                past.fate = None;
            }
        }
        for object in objects {
            touched.extend(self.one(watched, object));
        }
        if let Watched::Streams(class) = watched
            && self.listed.insert(class.name.clone())
        {
            touched.extend(self.missing(|name| *name == *class.name));
        }
        touched
    }

    fn gone(&mut self, watched: &Watched, place: &Place, uid: &str) -> Vec<Key> {
        match watched {
            Watched::Classes(line) => {
                let name: ClassName = match line {
                    Line::V1 => place.name.clone(),
                    Line::Beta => place.to_string().into(),
                };
                if self.classes.get(&name).is_some_and(|class| class.uid == uid) {
                    self.version += 1;
                    self.classes.remove(&name);
                }
                Vec::new()
            }
            Watched::Streams(class) => {
                let key = Key { class: class.name.clone(), place: place.clone() };
                if self.streams.get(&key).is_none_or(|stream| *stream.uid != *uid) {
                    return Vec::new();
                }
                self.version += 1;
                self.streams.remove(&key);
                self.waiting.remove(&key);
                self.past.remove(place);
                vec![key]
            }
            Watched::Jobs => {
                if self.jobs.get(place).is_none_or(|job| *job.uid != *uid) {
                    return Vec::new();
                }
                let Some(job) = self.jobs.remove(place) else { return Vec::new() };
                let mut touched = self.counted(place, false);
                touched.extend(self.key_of(&job));
                if touched.iter().any(|key| self.streams.contains_key(key)) {
                    self.remember(place, job);
                }
                touched
            }
            Watched::Crons => {
                if self.crons.get(place).is_none_or(|cron| *cron.uid != *uid) {
                    return Vec::new();
                }
                self.runs.remove(place);
                let owner = self.crons.remove(place).and_then(|cron| cron.owner);
                let key = owner.and_then(|o| self.key(&o.kind, &place.namespace, &o.name));
                key.into_iter().collect()
            }
            Watched::Requests => {
                if self.requests.get(place).is_none_or(|request| request.uid != *uid) {
                    return Vec::new();
                }
                let Some(request) = self.requests.remove(place) else { return Vec::new() };
                let key = asked_for(&request);
                if let Some(names) = self.requests_for.get_mut(&key.place) {
                    names.remove(&(request.created, place.name.clone()));
                    if names.is_empty() {
                        self.requests_for.remove(&key.place);
                    }
                }
                vec![key]
            }
            Watched::Templates(line) => {
                self.templates.remove(&(*line, place.clone()));
                Vec::new()
            }
            Watched::Secrets => {
                self.secrets.remove(place);
                Vec::new()
            }
        }
    }

    /// A Job's end that was asked for.
    pub fn fate(&mut self, place: &Place, uid: &str, fate: Fate) {
        self.past.insert(place.clone(), Past { uid: uid.into(), owner: None, fate: Some(fate) });
    }

    /// A stream waits for a backfill to end, or no longer does.
    pub fn waits(&mut self, key: &Key, waits: bool) {
        match waits {
            true => self.waiting.insert(key.clone()),
            false => self.waiting.remove(key),
        };
    }

    /// A Job was stopped because something changed.
    pub fn restarted(&mut self, now: Timestamp) {
        self.restarts.retain(|at| now.duration_since(*at).as_secs() < 60);
        self.restarts.push(now);
    }

    /// The streams of a class that is no longer watched are forgotten, and nothing else.
    pub fn forget_streams(&mut self, class: &str) {
        self.version += 1;
        self.listed.remove(class);
        self.streams.retain(|key, _| *key.class != *class);
        self.waiting.retain(|key| *key.class != *class);
    }
}

fn identity(object: &Object) -> (Place, Box<str>) {
    match object {
        Object::Class(class) => (class_place(&class.name), class.uid.as_str().into()),
        Object::Stream(stream) => (stream.key.place.clone(), stream.uid.clone()),
        Object::Job(job) => (job.place.clone(), job.uid.clone()),
        Object::Cron(cron) => (cron.place.clone(), cron.uid.clone()),
        Object::Request(request) => (request.place.clone(), request.uid.as_str().into()),
        Object::Template(template) => (template.place.clone(), "".into()),
        Object::Secret(place, _) => (place.clone(), "".into()),
    }
}

/// Where a class stands: those of v1 are in no namespace.
pub fn class_place(name: &str) -> Place {
    match name.split_once('/') {
        Some((namespace, name)) => Place::new(namespace, name),
        None => Place::new("", name),
    }
}

/// The stream that a request is for, whether it is there or not.
fn asked_for(request: &Request) -> Key {
    Key {
        class: request.class.as_str().into(),
        place: Place::new(&request.place.namespace, &request.stream),
    }
}
