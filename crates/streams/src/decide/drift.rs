//! Compares a running Job or CronJob with the one that would be created now.

use super::build::{self, JobInputs};
use super::stream::{View, restart_requested};
use crate::model::NamespacedName;
use crate::model::hash::md5_hex;
use crate::model::job::{CronJob, Job, MadeFrom};
use crate::model::template::Template;

pub(super) const RESTART_REQUESTED: &str = "a restart was requested";

impl View<'_> {
    pub(super) fn job_inputs(&self, template: &NamespacedName) -> Result<JobInputs<'_>, String> {
        let Some(found) = self.template(template) else {
            return Err(format!(
                "StreamingJobTemplate {template} is not there; the stream starts when it is"
            ));
        };
        let secrets = self.stream.annotations.on_secrets.then(|| self.secrets()).transpose()?;
        let secrets = secrets.flatten();
        Ok(JobInputs { class: self.class, stream: self.stream, template: found, secrets })
    }

    fn template(&self, object_name: &NamespacedName) -> Option<&Template> {
        self.observed.template(self.class.crd_version, object_name)
    }

    /// The hash of the stream's secrets; none if one of them is unknown.
    fn secrets(&self) -> Result<Option<String>, String> {
        let names = build::secret_names(self.class, self.stream)?;
        let namespace = &self.stream.object_name().namespace;
        let of = |name: &String| {
            let revision = self.observed.secrets.get(&NamespacedName::new(namespace, name))?;
            Some(format!("{name} {revision:?}"))
        };
        let all: Option<Vec<String>> = names.iter().map(of).collect();
        Ok(all.map(|all| md5_hex(all.join("\n").as_bytes())))
    }

    /// Why a Job is outdated, if it is.
    pub(super) fn changed(&self, job: &Job, template: &NamespacedName) -> Option<&'static str> {
        let asked = job.state.as_deref() == Some("restart-requested");
        asked.then_some(RESTART_REQUESTED).or_else(|| self.differs(&job.made_from, template))
    }

    pub(super) fn schedule_changed(
        &self,
        cron_job: &CronJob,
        schedule: &str,
        template: &NamespacedName,
    ) -> bool {
        *cron_job.schedule != *schedule || self.differs(&cron_job.made_from, template).is_some()
    }

    fn differs(&self, made: &MadeFrom, template: &NamespacedName) -> Option<&'static str> {
        let annotations = &self.stream.annotations;
        let same = made.hash.as_ref() == Some(&self.stream.hash)
            || made.canonical_digest == Some(self.stream.canonical_digest);
        // Only hashes that were recorded at creation can be compared.
        let template = || match (&made.template_hash, self.template(template)) {
            (Some(then), Some(now)) => annotations.on_template && **then != *now.hash,
            _ => false,
        };
        let secrets = || match (&made.secrets_hash, self.secrets()) {
            (Some(then), Ok(Some(now))) => annotations.on_secrets && **then != *now,
            _ => false,
        };
        if !same {
            Some("its spec has changed")
        } else if restart_requested(self.stream, made.restart.as_deref()) {
            Some(RESTART_REQUESTED)
        } else if template() {
            Some("its template has changed")
        } else if secrets() {
            Some("one of its secrets has changed")
        } else {
            None
        }
    }
}
