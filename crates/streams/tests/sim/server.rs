//! An API server in memory, with the controllers that matter to Jobs. Everything that it does is a
//! step that the simulator takes when it likes.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use streams::cluster::{Answer, Call, Cluster, Object, Refused, Told, Watched, What};
use streams::model::class::Class;
use streams::model::job::{Cron, Fate, Job};
use streams::model::meta::Revision;
use streams::model::request::Request;
use streams::model::stream::Stream;
use streams::model::{GROUP, Place};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Stream,
    Job,
    Cron,
    Request,
}

pub const KINDS: [Kind; 4] = [Kind::Stream, Kind::Job, Kind::Cron, Kind::Request];

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<(Kind, String), Value>,
    version: u64,
    uids: u64,
    /// What happened to each kind, in order: the object, and whether it is its end.
    pub log: Vec<(Kind, Value, bool)>,
    /// How Jobs ended, as their events tell.
    pub ends: BTreeMap<String, Fate>,
    /// Requests that a Job has carried out to its end.
    pub carried_out: BTreeSet<String>,
    /// The answers to so many calls are lost, after the call was carried out or before.
    pub lose: Option<bool>,
    pub jobs_made: usize,
    pub wrong: Vec<String>,
}

pub struct Server {
    pub state: Mutex<State>,
    pub class: Class,
}

pub const NAMESPACE: &str = "n";

impl State {
    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    pub fn put(&mut self, kind: Kind, mut object: Value) -> Value {
        self.stamp(&mut object);
        let name = name(&object);
        self.objects.insert((kind, name), object.clone());
        self.log.push((kind, object.clone(), false));
        object
    }

    pub fn create(&mut self, kind: Kind, mut object: Value) -> Option<Value> {
        if self.objects.contains_key(&(kind, name(&object))) {
            return None;
        }
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("00000000-0000-0000-0000-{:012}", self.uids));
        object["metadata"]["namespace"] = json!(NAMESPACE);
        object["metadata"]["generation"] = json!(1);
        let second = self.uids % 60;
        let minute = self.uids / 60 % 60;
        object["metadata"]["creationTimestamp"] =
            json!(format!("2026-11-16T08:{minute:02}:{second:02}Z"));
        Some(self.put(kind, object))
    }

    pub fn end(&mut self, kind: Kind, name: &str) {
        let Some(mut object) = self.objects.remove(&(kind, name.to_owned())) else { return };
        self.stamp(&mut object);
        self.log.push((kind, object, true));
    }

    pub fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub fn names(&self, kind: Kind) -> Vec<String> {
        self.objects.keys().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }

    /// A Job ends, as its pods did.
    pub fn finish(&mut self, name: &str, ok: bool) {
        let Some(job) = self.get(Kind::Job, name) else { return };
        if job["status"]["conditions"].is_array() {
            return;
        }
        let mut job = job.clone();
        let uid = job["metadata"]["uid"].as_str().unwrap().to_owned();
        let (kind, fate) = match ok {
            true => ("Complete", Fate::Complete),
            false => ("Failed", Fate::Failed("BackoffLimitExceeded".into())),
        };
        job["status"]["conditions"] = json!([{
            "type": kind, "status": "True", "reason": "BackoffLimitExceeded",
            "lastTransitionTime": "2026-11-16T09:00:00Z",
        }]);
        if ok && job["metadata"]["labels"]["arcane/backfilling"] == "true" {
            let env = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
            let id = env.iter().find(|v| v["name"] == "STREAMCONTEXT__BACKFILL_ID").unwrap();
            self.carried_out.insert(id["value"].as_str().unwrap().to_owned());
        }
        self.ends.insert(uid, fate);
        self.put(Kind::Job, job);
    }

    /// The garbage collector: what belongs to a stream that is gone goes.
    pub fn collect(&mut self) -> bool {
        let uids: BTreeSet<String> = self
            .objects
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::Stream)
            .map(|(_, object)| object["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect();
        let orphans: Vec<(Kind, String)> = self
            .objects
            .iter()
            .filter(|(_, object)| {
                let owner = object["metadata"]["ownerReferences"][0]["uid"].as_str();
                owner.is_some_and(|owner| !uids.contains(owner))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for (kind, name) in &orphans {
            self.end(*kind, name);
        }
        !orphans.is_empty()
    }
}

pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

impl Server {
    pub fn watched(&self, kind: Kind) -> Watched {
        match kind {
            Kind::Stream => Watched::Streams(self.class.clone().into()),
            Kind::Job => Watched::Jobs,
            Kind::Cron => Watched::Crons,
            Kind::Request => Watched::Requests,
        }
    }

    pub fn object(&self, kind: Kind, value: &Value) -> Object {
        fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
            serde_json::from_value(value.clone()).unwrap()
        }
        match kind {
            Kind::Stream => Object::Stream(Stream::of(read(value), &self.class)),
            Kind::Job => Object::Job(Job::of(read(value)).unwrap()),
            Kind::Cron => Object::Cron(Cron::of(read(value)).unwrap()),
            Kind::Request => Object::Request(Request::of(read(value))),
        }
    }

    /// What a watch tells of an entry of the log.
    pub fn told(&self, kind: Kind, value: &Value, end: bool) -> Told {
        if !end {
            return Told::Is(self.object(kind, value).into());
        }
        let uid = value["metadata"]["uid"].as_str().unwrap().into();
        let revision = Revision::of(value["metadata"]["resourceVersion"].as_str().unwrap());
        Told::Gone(Place::new(NAMESPACE, &name(value)), uid, revision)
    }

    pub fn all(&self, kind: Kind) -> Told {
        let state = self.state.lock();
        let of = state.objects.iter().filter(|((of, _), _)| *of == kind);
        Told::All(of.map(|(_, value)| self.object(kind, value)).collect())
    }

    fn carry_out(&self, state: &mut State, call: &Call) -> Result<Answer, Refused> {
        let answer = |kind, value: &Value| Ok(Answer::Object(self.object(kind, value).into()));
        match call {
            Call::Create(What::Event, _) => Ok(Answer::Done),
            Call::Create(what, manifest) => {
                let kind = kind(what);
                if kind == Kind::Job {
                    self.check_job(state, manifest);
                }
                match state.create(kind, manifest.clone()) {
                    Some(made) => answer(kind, &made),
                    None => Err(Refused::Exists),
                }
            }
            Call::Delete { what, place, uid, foreground } => {
                let kind = kind(what);
                let Some(object) = state.get(kind, &place.name) else {
                    return Err(Refused::NotFound);
                };
                if object["metadata"]["uid"] != **uid {
                    return Err(Refused::Conflict);
                }
                if !foreground {
                    state.end(kind, &place.name);
                    return Ok(Answer::Done);
                }
                let mut object = object.clone();
                object["metadata"]["deletionTimestamp"] = json!("2026-11-16T09:00:00Z");
                let object = state.put(kind, object);
                answer(kind, &object)
            }
            Call::Patch { what, place, patch, .. } => {
                let kind = kind(what);
                let Some(object) = state.get(kind, &place.name) else {
                    return Err(Refused::NotFound);
                };
                let mut object = object.clone();
                if kind == Kind::Stream && patch.get("spec").is_some() {
                    state.wrong.push(format!("what {} wishes was rewritten", place.name));
                }
                if patch.pointer("/spec/completed") == Some(&json!(true))
                    && !state.carried_out.contains(&*place.name)
                {
                    state.wrong.push(format!("{} was completed and never carried out", place.name));
                }
                merge(&mut object, patch);
                let object = state.put(kind, object);
                answer(kind, &object)
            }
            Call::Fate { uid, .. } => {
                Ok(Answer::Fate(state.ends.get(&**uid).cloned().unwrap_or(Fate::Gone)))
            }
            Call::ReadLease(_) | Call::WriteLease(..) => Err(Refused::NotFound),
        }
    }

    /// What must hold of every Job that is made, whatever was missed.
    fn check_job(&self, state: &mut State, manifest: &Value) {
        state.jobs_made += 1;
        let name = name(manifest);
        let owner = &manifest["metadata"]["ownerReferences"][0];
        if owner["controller"] != true || owner["name"] != *name {
            state.wrong.push(format!("{name} belongs to nobody"));
        }
    }
}

fn kind(what: &What) -> Kind {
    match what {
        What::Stream(_) => Kind::Stream,
        What::Job => Kind::Job,
        What::Cron => Kind::Cron,
        What::Request => Kind::Request,
        What::Class(_) | What::Event => panic!("{what:?} is not simulated"),
    }
}

pub fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
            value => merge(&mut object[name.as_str()], value),
        }
    }
}

#[async_trait]
impl Cluster for Server {
    fn watch(&self, _: Watched) -> BoxStream<'static, Told> {
        futures::stream::pending().boxed()
    }

    async fn call(&self, call: Call) -> Result<Answer, Refused> {
        let mut state = self.state.lock();
        match state.lose.take() {
            // It never arrived.
            Some(false) => Err(Refused::Away("cut".into())),
            // The answer was lost.
            Some(true) => {
                let _ = self.carry_out(&mut state, &call);
                Err(Refused::Away("cut".into()))
            }
            None => self.carry_out(&mut state, &call),
        }
    }
}

pub fn class() -> Class {
    let raw = json!({
        "metadata": { "name": "class-a", "uid": "class", "resourceVersion": "1" },
        "spec": { "apiGroupRef": GROUP, "apiVersion": "v1", "kindRef": "A", "pluralName": "as" },
    });
    Class::of(serde_json::from_value(raw).unwrap(), streams::model::Line::V1)
}
