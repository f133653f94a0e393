//! An in-memory API server with the controllers that matter to Jobs. Each of its steps is taken by
//! the simulator.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use streams::model::backfill_request::BackfillRequest;
use streams::model::class::Class;
use streams::model::job::{CronJob, Job, JobResult};
use streams::model::meta::Revision;
use streams::model::stream::Stream;
use streams::model::watch::{ApiError, Object, Resource, WatchEvent};
use streams::model::{GROUP, NamespacedName};
use streams::ports::api_server::{ApiServer, Request, Response};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Stream,
    Job,
    CronJob,
    BackfillRequest,
}

pub const KINDS: [Kind; 4] = [Kind::Stream, Kind::Job, Kind::CronJob, Kind::BackfillRequest];

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<(Kind, String), Value>,
    version: u64,
    uids: u64,
    /// The changes of each kind, in order: the object, and whether it was deleted.
    pub log: Vec<(Kind, Value, bool)>,
    /// How Jobs ended, as their events say.
    pub ends: BTreeMap<String, JobResult>,
    /// Requests that a Job has completed.
    pub carried_out: BTreeSet<String>,
    /// Loses the response to the next request, after (true) or before (false) carrying it out.
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

    /// Ends a Job.
    pub fn finish(&mut self, name: &str, ok: bool) {
        let Some(job) = self.get(Kind::Job, name) else { return };
        if job["status"]["conditions"].is_array() {
            return;
        }
        let mut job = job.clone();
        let uid = job["metadata"]["uid"].as_str().unwrap().to_owned();
        let (kind, result) = if ok {
            ("Complete", JobResult::Complete)
        } else {
            ("Failed", JobResult::Failed("BackoffLimitExceeded".into()))
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
        self.ends.insert(uid, result);
        self.put(Kind::Job, job);
    }

    /// The garbage collector: deletes what belongs to a deleted stream.
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
    pub fn watched(&self, kind: Kind) -> Resource {
        match kind {
            Kind::Stream => Resource::Streams(self.class.clone().into()),
            Kind::Job => Resource::Jobs,
            Kind::CronJob => Resource::CronJobs,
            Kind::BackfillRequest => Resource::BackfillRequests,
        }
    }

    pub fn object(&self, kind: Kind, value: &Value) -> Object {
        fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
            serde_json::from_value(value.clone()).unwrap()
        }
        match kind {
            Kind::Stream => Object::Stream(Stream::of(&read(value), &self.class)),
            Kind::Job => Object::Job(Job::of(&read(value)).unwrap()),
            Kind::CronJob => Object::CronJob(CronJob::of(&read(value)).unwrap()),
            Kind::BackfillRequest => Object::BackfillRequest(BackfillRequest::of(&read(value))),
        }
    }

    /// The watch event of an entry of the log.
    pub fn event(&self, kind: Kind, value: &Value, end: bool) -> WatchEvent {
        if !end {
            return WatchEvent::Upserted(self.object(kind, value).into());
        }
        let uid = value["metadata"]["uid"].as_str().unwrap().into();
        let revision = Revision::of(value["metadata"]["resourceVersion"].as_str().unwrap());
        WatchEvent::Deleted(NamespacedName::new(NAMESPACE, &name(value)), uid, revision)
    }

    pub fn all(&self, kind: Kind) -> WatchEvent {
        let state = self.state.lock();
        let of = state.objects.iter().filter(|((of, _), _)| *of == kind);
        WatchEvent::Snapshot(of.map(|(_, value)| self.object(kind, value)).collect())
    }

    fn execute(&self, state: &mut State, send: &Request) -> Result<Response, ApiError> {
        let answer = |kind, value: &Value| Ok(Response::Object(self.object(kind, value).into()));
        match send {
            Request::Create(Resource::Events, _) => Ok(Response::Empty),
            Request::Create(resource, manifest) => {
                let kind = kind_of(resource);
                if kind == Kind::Job {
                    self.check_job(state, manifest);
                }
                match state.create(kind, manifest.clone()) {
                    Some(made) => answer(kind, &made),
                    None => Err(ApiError::AlreadyExists),
                }
            }
            Request::Delete { resource, object_name, uid, foreground } => {
                let kind = kind_of(resource);
                let Some(object) = state.get(kind, &object_name.name) else {
                    return Err(ApiError::NotFound);
                };
                if object["metadata"]["uid"] != **uid {
                    return Err(ApiError::Conflict);
                }
                if !foreground {
                    state.end(kind, &object_name.name);
                    return Ok(Response::Empty);
                }
                let mut object = object.clone();
                object["metadata"]["deletionTimestamp"] = json!("2026-11-16T09:00:00Z");
                let object = state.put(kind, object);
                answer(kind, &object)
            }
            Request::Patch { resource, object_name, patch, .. } => {
                let kind = kind_of(resource);
                let Some(object) = state.get(kind, &object_name.name) else {
                    return Err(ApiError::NotFound);
                };
                let mut object = object.clone();
                if kind == Kind::Stream && patch.get("spec").is_some() {
                    state.wrong.push(format!("what {} wishes was rewritten", object_name.name));
                }
                if patch.pointer("/spec/completed") == Some(&json!(true))
                    && !state.carried_out.contains(&*object_name.name)
                {
                    state
                        .wrong
                        .push(format!("{} was completed and never carried out", object_name.name));
                }
                merge(&mut object, patch);
                let object = state.put(kind, object);
                answer(kind, &object)
            }
            Request::JobResult { uid, .. } => Ok(Response::JobResult(
                state.ends.get(&**uid).cloned().unwrap_or(JobResult::Removed),
            )),
            Request::ReadLease(_) | Request::WriteLease(..) => Err(ApiError::NotFound),
        }
    }

    /// Checks what must hold of every Job that is created.
    fn check_job(&self, state: &mut State, manifest: &Value) {
        state.jobs_made += 1;
        let name = name(manifest);
        let owner = &manifest["metadata"]["ownerReferences"][0];
        if owner["controller"] != true || owner["name"] != *name {
            state.wrong.push(format!("{name} belongs to nobody"));
        }
    }
}

fn kind_of(resource: &Resource) -> Kind {
    match resource {
        Resource::Streams(_) => Kind::Stream,
        Resource::Jobs => Kind::Job,
        Resource::CronJobs => Kind::CronJob,
        Resource::BackfillRequests => Kind::BackfillRequest,
        other => panic!("{other:?} is not simulated"),
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
impl ApiServer for Server {
    fn watch(&self, _: Resource) -> BoxStream<'static, WatchEvent> {
        futures::stream::pending().boxed()
    }

    async fn send(&self, send: Request) -> Result<Response, ApiError> {
        let mut state = self.state.lock();
        match state.lose.take() {
            // The request was not delivered.
            Some(false) => Err(ApiError::Unreachable("cut".into())),
            // The response was lost.
            Some(true) => {
                let _ = self.execute(&mut state, &send);
                Err(ApiError::Unreachable("cut".into()))
            }
            None => self.execute(&mut state, &send),
        }
    }
}

pub fn class() -> Class {
    let raw = json!({
        "metadata": { "name": "class-a", "uid": "class", "resourceVersion": "1" },
        "spec": { "apiGroupRef": GROUP, "apiVersion": "v1", "kindRef": "A", "pluralName": "as" },
    });
    Class::of(&serde_json::from_value(raw).unwrap(), streams::model::CrdVersion::V1)
}
