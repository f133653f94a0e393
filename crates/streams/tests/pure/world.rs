//! A cluster that tests put together, with the index of an operator that watches it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};
use streams::decide::{Action, Decision, decide};
use streams::index::Index;
use streams::model::backfill_request::BackfillRequest;
use streams::model::class::{Class, RawClass};
use streams::model::job::{CronJob, Job};
use streams::model::stream::Stream;
use streams::model::template::Template;
use streams::model::watch::{Object, Resource, WatchEvent};
use streams::model::{CrdVersion, GROUP, Key, NamespacedName};

pub const JOB: &str = "11111111-1111-1111-1111-111111111111";
pub const NOW: &str = "2026-11-16T08:00:00Z";

/// Parsed once: the tests of every state create tens of thousands of worlds.
static TEMPLATES: LazyLock<Vec<(&str, Value, Template)>> = LazyLock::new(|| {
    let read = |name: &'static str| {
        let raw = json!({
            "metadata": { "name": name, "namespace": "t", "resourceVersion": "2" },
            "spec": template(name),
        });
        let template = Template::of(&serde_json::from_value(raw.clone()).unwrap(), CrdVersion::V1);
        (name, raw, template)
    };
    ["stream", "backfill", "batch"].map(read).into()
});

pub fn now() -> Timestamp {
    NOW.parse().unwrap()
}

pub struct World {
    pub index: Index,
    pub class: Class,
    pub now: Timestamp,
    /// The objects as the API server has them.
    pub objects: Objects,
    version: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Objects {
    pub stream: Option<Value>,
    pub job: Option<Value>,
    pub cron_job: Option<Value>,
    pub requests: BTreeMap<String, Value>,
    pub templates: BTreeMap<String, Value>,
}

impl World {
    /// With a class `class-a` of kind `A`, and the templates `t/stream`, `t/backfill`, `t/batch`.
    pub fn new() -> World {
        World::of(CrdVersion::V1, &["secretRef"])
    }

    pub fn of(crd_version: CrdVersion, secrets: &[&str]) -> World {
        let class: RawClass = serde_json::from_value(json!({
            "metadata": { "name": "class-a", "namespace": "n", "uid": "class-uid", "resourceVersion": "1" },
            "spec": { "apiVersion": "v1", "kindRef": "A", "pluralName": "as", "secretRefs": secrets },
        }))
        .unwrap();
        let class = Class::of(&class, crd_version);
        let index = index(&class);
        let mut world =
            World { index, class, now: now(), objects: Objects::default(), version: 10 };
        for (name, raw, template) in &*TEMPLATES {
            world.objects.templates.insert((*name).into(), raw.clone());
            let template = Object::Template(Template { crd_version, ..template.clone() });
            world
                .index
                .apply(&Resource::Templates(crd_version), WatchEvent::Upserted(template.into()));
        }
        world
    }

    pub fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub fn key(&self) -> Key {
        Key { class: self.class.name.clone(), object_name: NamespacedName::new("n", "s1") }
    }

    pub fn template(&mut self, name: &str, spec: &Value) {
        let raw = json!({
            "metadata": { "name": name, "namespace": "t", "resourceVersion": self.next() },
            "spec": spec,
        });
        self.objects.templates.insert(name.into(), raw.clone());
        self.learn_template(raw);
    }

    pub fn learn_template(&mut self, raw: Value) {
        let crd_version = self.class.crd_version;
        let object =
            Object::Template(Template::of(&serde_json::from_value(raw).unwrap(), crd_version));
        self.index.apply(&Resource::Templates(crd_version), WatchEvent::Upserted(object.into()));
    }

    pub fn learn_stream(&mut self, raw: Value) {
        let stream = Stream::of(&serde_json::from_value(raw.clone()).unwrap(), &self.class);
        self.objects.stream = Some(raw);
        self.index.upsert(Object::Stream(stream));
    }

    pub fn learn_job(&mut self, raw: Value) {
        let job = Job::of(&serde_json::from_value(raw.clone()).unwrap()).unwrap();
        self.objects.job = Some(raw);
        self.index.upsert(Object::Job(job));
    }

    pub fn learn_cron(&mut self, raw: Value) {
        let cron_job = CronJob::of(&serde_json::from_value(raw.clone()).unwrap()).unwrap();
        self.objects.cron_job = Some(raw);
        self.index.upsert(Object::CronJob(cron_job));
    }

    pub fn learn_request(&mut self, raw: Value) {
        let request = BackfillRequest::of(&serde_json::from_value(raw.clone()).unwrap());
        self.objects.requests.insert(request.object_name.name.to_string(), raw);
        self.index.upsert(Object::BackfillRequest(request));
    }

    /// The stream `n/s1`, uid `s1-uid`.
    pub fn stream(&mut self, phase: &str, spec: Value) -> &mut World {
        self.stream_with(phase, spec, json!({}))
    }

    pub fn stream_with(&mut self, phase: &str, spec: Value, annotations: Value) -> &mut World {
        self.stream_with_message(phase, spec, annotations, "as it was")
    }

    pub fn stream_with_message(
        &mut self,
        phase: &str,
        spec: Value,
        annotations: Value,
        message: &str,
    ) -> &mut World {
        let mut raw = json!({
            "metadata": {
                "name": "s1", "namespace": "n", "uid": "s1-uid", "generation": 1,
                "resourceVersion": self.next(), "annotations": annotations,
                "creationTimestamp": "2026-11-16T07:00:00Z",
            },
            "spec": spec,
        });
        if !phase.is_empty() {
            raw["status"] = json!({ "phase": phase, "conditions": [
                { "type": "Ready", "status": "True", "message": message }
            ] });
        }
        self.learn_stream(raw);
        self
    }

    /// A Job of the stream.
    pub fn job(&mut self, uid: &str, change: impl FnOnce(&mut Value)) -> &mut World {
        let stream = self.index.stream(&self.key()).unwrap().clone();
        let mut raw = json!({
            "metadata": {
                "name": "s1", "namespace": "n", "uid": uid, "resourceVersion": self.next(),
                "creationTimestamp": "2026-11-16T07:30:00Z",
                "labels": { "arcane/stream-id": "s1", "arcane/stream-kind": "A", "arcane/backfilling": "false" },
                "annotations": { "configuration-hash": stream.hash },
                "ownerReferences": [{ "apiVersion": format!("{GROUP}/v1"), "kind": "A", "name": "s1", "uid": "s1-uid", "controller": true }],
            },
            "spec": { "template": { "spec": { "containers": [{ "env": [] }] } } },
            "status": {},
        });
        change(&mut raw);
        self.learn_job(raw);
        self
    }

    pub fn cron_job(&mut self, change: impl FnOnce(&mut Value)) -> &mut World {
        let stream = self.index.stream(&self.key()).unwrap().clone();
        let mut raw = json!({
            "metadata": {
                "name": "s1", "namespace": "n", "uid": "cron-uid", "resourceVersion": self.next(),
                "annotations": { "configuration-hash": stream.hash },
                "ownerReferences": [{ "apiVersion": format!("{GROUP}/v1"), "kind": "A", "name": "s1", "uid": "s1-uid", "controller": true }],
            },
            "spec": { "schedule": "0 * * * *" },
        });
        change(&mut raw);
        self.learn_cron(raw);
        self
    }

    pub fn request(&mut self, name: &str, change: impl FnOnce(&mut Value)) -> &mut World {
        let mut raw = json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": format!("{name}-uid"),
                "resourceVersion": self.next(), "creationTimestamp": "2026-11-16T07:20:00Z",
            },
            "spec": { "streamClass": self.class.name, "streamId": "s1" },
        });
        change(&mut raw);
        self.learn_request(raw);
        self
    }

    pub fn job_gone(&mut self, uid: &str) -> &mut World {
        let revision = streams::model::meta::Revision::of(&self.next());
        let object_name = NamespacedName::new("n", "s1");
        self.objects.job = None;
        self.index.apply(&Resource::Jobs, WatchEvent::Deleted(object_name, uid.into(), revision));
        self
    }

    pub fn decide(&self) -> Decision {
        decide(&self.index.observe(&self.key(), self.now), self.now)
    }

    /// The actions of the next decision, in brief.
    pub fn does(&self) -> Vec<String> {
        self.decide().actions.iter().map(brief).collect()
    }
}

/// An index that has listed the class and no streams.
pub fn index(class: &Class) -> Index {
    let mut index = Index::default();
    let classes = WatchEvent::Snapshot(vec![Object::Class(class.clone())]);
    index.apply(&Resource::Classes(class.crd_version), classes);
    index.apply(&Resource::Streams(class.clone().into()), WatchEvent::Snapshot(Vec::new()));
    index
}

pub fn brief(action: &Action) -> String {
    match action {
        Action::RequestInitialBackfill { .. } => "request initial".into(),
        Action::StartJob { mode, .. } => format!("start {mode:?}"),
        Action::StopJob { uid, running, why } => {
            format!("stop {uid} {why:?}{}", if *running { " running" } else { "" })
        }
        Action::StartSchedule { .. } => "start schedule".into(),
        Action::StopSchedule { uid } => format!("stop schedule {uid}"),
        Action::LookUpJobResult { uid } => format!("ask {uid}"),
        Action::CompleteRequest { name } => format!("complete {name}"),
        Action::RefuseRequest { request, .. } => format!("refuse {request}"),
        Action::RemoveRequest { request, .. } => format!("remove {request}"),
        Action::Annotate { name, value } => format!("annotate {name} {value:?}"),
        Action::SetStatus(status) => {
            format!("{:?}{}", status.phase, if status.error { "!" } else { "" })
        }
        Action::Publish(event) => {
            format!("{} {}", if event.warning { "W" } else { "N" }, event.reason)
        }
    }
}

pub fn template(name: &str) -> Value {
    json!({ "metadata": {}, "spec": {
        "backoffLimit": 3,
        "template": { "spec": {
            "containers": [{ "name": "c", "image": name, "env": [{ "name": "APPLICATION_VERSION", "value": "1" }] }],
            "restartPolicy": "Never",
        } },
    } })
}

fn reference(name: &str) -> Value {
    json!({ "apiGroup": GROUP, "kind": "StreamingJobTemplate", "name": name, "namespace": "t" })
}

/// A change-capture spec in one of the layouts.
pub fn capture(layout: &str, suspended: bool) -> Value {
    let mut spec = match layout {
        "v0" => json!({
            "suspended": suspended,
            "jobTemplateRef": reference("stream"),
            "backfillJobTemplateRef": reference("backfill"),
        }),
        "v1" => json!({ "execution": {
            "layoutVersion": "v1", "suspended": suspended,
            "backfillJobTemplateRef": reference("backfill"),
            "streamingBackend": { "batch": null, "changeCapture": { "jobTemplateRef": reference("stream") } },
        } }),
        _ => json!({ "execution": {
            "layoutVersion": "v2", "suspended": suspended,
            "streamingBackend": { "changeCapture": {
                "jobTemplateRef": reference("stream"),
                "backfillJobTemplateRef": reference("backfill"),
            } },
        } }),
    };
    spec["secretRef"] = json!({ "name": "password" });
    spec["source"] = json!({ "url": "a<b&c>d" });
    spec
}

pub fn batch(layout: &str, suspended: bool) -> Value {
    let mut spec = json!({ "execution": {
        "layoutVersion": layout, "suspended": suspended,
        "streamingBackend": { "changeCapture": null, "batch": {
            "schedule": "0 * * * *", "jobTemplateRef": reference("batch"),
        } },
    }, "secretRef": { "name": "password" } });
    if layout == "v1" {
        spec["execution"]["backfillJobTemplateRef"] = reference("backfill");
    }
    spec
}

/// Changes of a Job's manifest.
pub fn ended(kind: &'static str) -> impl FnOnce(&mut Value) {
    move |job| {
        job["status"]["conditions"] = json!([{
            "type": kind, "status": "True", "reason": "BackoffLimitExceeded",
            "message": "too often", "lastTransitionTime": NOW,
        }]);
    }
}

pub fn for_request(id: &'static str) -> impl FnOnce(&mut Value) {
    move |job| {
        job["metadata"]["labels"]["arcane/backfilling"] = json!("true");
        job["metadata"]["annotations"]["configuration-hash"] = json!("other");
        job["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{ "name": "STREAMCONTEXT__BACKFILL_ID", "value": id }]);
    }
}

pub fn outdated(job: &mut Value) {
    job["metadata"]["annotations"]["configuration-hash"] = json!("old-hash");
}

pub fn deleting(job: &mut Value) {
    job["metadata"]["deletionTimestamp"] = json!(NOW);
}
