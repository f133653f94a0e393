//! Carries out the commands of a decision on the objects of a [`World`], as the API server and the
//! Job controller would.

use serde_json::{Value, json};
use streams::decide::Action;
use streams::model::NamespacedName;
use streams::model::job::JobResult;
use streams::model::meta::{Revision, seconds};
use streams::model::watch::{Resource, WatchEvent};

use crate::world::{World, brief, index};

/// More rounds than any chain of decisions needs that no event from outside interrupts.
const ROUNDS: usize = 12;

/// What happened until nothing was left to do.
#[derive(Debug, Default)]
pub struct Story {
    pub steps: Vec<String>,
    /// How many Jobs and CronJobs were created.
    pub created: usize,
}

impl World {
    /// Decides and applies until a decision has no commands. With `crash_after`, the operator is
    /// killed after that many commands and starts again with an empty memory.
    pub fn converge(&mut self, crash_after: Option<usize>) -> Result<Story, Story> {
        let mut story = Story::default();
        let mut applied = 0;
        for _ in 0..ROUNDS {
            let decision = self.decide();
            if decision.actions.is_empty() {
                if self.finish_deletions() {
                    continue;
                }
                return Ok(story);
            }
            for action in &decision.actions {
                story.steps.push(brief(action));
                story.created += usize::from(matches!(
                    action,
                    Action::StartJob { .. } | Action::StartSchedule { .. }
                ));
                self.apply(action);
                applied += 1;
                if Some(applied) == crash_after {
                    story.steps.push("crash".into());
                    self.restart_operator();
                    break;
                }
            }
        }
        Err(story)
    }

    pub fn apply(&mut self, action: &Action) {
        match action {
            Action::RequestInitialBackfill { manifest } => {
                let request = self.created(manifest);
                self.learn_request(request);
            }
            Action::StartJob { manifest, .. } => {
                assert!(self.objects.job.is_none(), "a Job of that name exists");
                let job = self.created(manifest);
                self.learn_job(job);
            }
            Action::StopJob { uid, running, .. } => {
                let mut job = self.objects.job.clone().unwrap();
                assert_eq!(job["metadata"]["uid"], **uid);
                if *running {
                    self.mark_deleting(&mut job);
                    self.learn_job(job);
                } else {
                    self.job_gone(uid);
                }
            }
            Action::StartSchedule { manifest } => {
                assert!(self.objects.cron_job.is_none(), "a CronJob of that name exists");
                let cron_job = self.created(manifest);
                self.learn_cron(cron_job);
            }
            Action::StopSchedule { uid } => {
                let mut cron_job = self.objects.cron_job.clone().unwrap();
                assert_eq!(cron_job["metadata"]["uid"], **uid);
                self.mark_deleting(&mut cron_job);
                self.learn_cron(cron_job);
            }
            Action::LookUpJobResult { uid } => {
                let object_name = self.key().object_name;
                self.index.record_job_result(&object_name, uid, JobResult::Removed);
            }
            Action::CompleteRequest { name } => {
                let mut request = self.objects.requests[&**name].clone();
                request["spec"]["completed"] = json!(true);
                self.touch(&mut request);
                self.learn_request(request);
            }
            Action::RefuseRequest { request, .. } => {
                let mut request = self.objects.requests[&*request.name].clone();
                request["status"] = json!({ "phase": "Failed" });
                self.touch(&mut request);
                self.learn_request(request);
            }
            Action::RemoveRequest { request, uid } => {
                self.objects.requests.remove(&*request.name).unwrap();
                let gone =
                    WatchEvent::Deleted(request.clone(), uid.clone(), Revision::of(&self.next()));
                self.index.apply(&Resource::BackfillRequests, gone);
            }
            Action::Annotate { name, value } => self.annotate(name, value.as_deref()),
            Action::SetStatus(status) => {
                let known = self.index.stream(&self.key()).unwrap().clone();
                let patch = status.patch(&known, self.class.crd_version, self.now);
                let mut stream = self.objects.stream.clone().unwrap();
                for (field, value) in patch["status"].as_object().unwrap() {
                    stream["status"][field] = value.clone();
                }
                self.touch(&mut stream);
                self.learn_stream(stream);
            }
            Action::Publish(_) => {}
        }
    }

    pub fn annotate(&mut self, name: &str, value: Option<&str>) {
        let mut stream = self.objects.stream.clone().unwrap();
        let annotations = stream["metadata"]["annotations"].as_object_mut().unwrap();
        match value {
            Some(value) => annotations.insert(name.into(), json!(value)),
            None => annotations.shift_remove(name),
        };
        self.touch(&mut stream);
        self.learn_stream(stream);
    }

    /// The Job controller reports the end of the Job that runs.
    pub fn end_job(&mut self, kind: &'static str) {
        let mut job = self.objects.job.clone().unwrap();
        job["status"]["conditions"] = json!([{
            "type": kind, "status": "True", "reason": "BackoffLimitExceeded",
            "message": "too often", "lastTransitionTime": seconds(self.now),
        }]);
        self.touch(&mut job);
        self.learn_job(job);
    }

    /// The garbage collector removes what is marked for deletion.
    fn finish_deletions(&mut self) -> bool {
        let marked = |object: &Option<Value>| {
            let metadata = &object.as_ref()?["metadata"];
            metadata["deletionTimestamp"].as_str()?;
            metadata["uid"].as_str().map(str::to_owned)
        };
        let (job, cron_job) = (marked(&self.objects.job), marked(&self.objects.cron_job));
        if let Some(uid) = &job {
            self.job_gone(uid);
        }
        if let Some(uid) = &cron_job {
            self.objects.cron_job = None;
            let revision = Revision::of(&self.next());
            let gone =
                WatchEvent::Deleted(NamespacedName::new("n", "s1"), uid.as_str().into(), revision);
            self.index.apply(&Resource::CronJobs, gone);
        }
        job.is_some() || cron_job.is_some()
    }

    /// An operator that has just listed everything and remembers nothing.
    fn restart_operator(&mut self) {
        let settings = self.index.settings.clone();
        self.index = index(&self.class);
        self.index.settings = settings;
        let objects = self.objects.clone();
        objects.templates.into_values().for_each(|raw| self.learn_template(raw));
        objects.stream.into_iter().for_each(|raw| self.learn_stream(raw));
        objects.requests.into_values().for_each(|raw| self.learn_request(raw));
        objects.job.into_iter().for_each(|raw| self.learn_job(raw));
        objects.cron_job.into_iter().for_each(|raw| self.learn_cron(raw));
    }

    fn created(&mut self, manifest: &Value) -> Value {
        let mut object = manifest.clone();
        let version = self.next();
        object["metadata"]["uid"] = json!(format!("00000000-0000-0000-0000-{version:0>12}"));
        object["metadata"]["creationTimestamp"] = json!(seconds(self.now));
        object["metadata"]["resourceVersion"] = json!(version);
        object
    }

    fn touch(&mut self, object: &mut Value) {
        object["metadata"]["resourceVersion"] = json!(self.next());
    }

    fn mark_deleting(&mut self, object: &mut Value) {
        object["metadata"]["deletionTimestamp"] = json!(seconds(self.now));
        self.touch(object);
    }
}
