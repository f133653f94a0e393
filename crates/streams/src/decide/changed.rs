//! Whether what runs was made from what is wanted now, and what a Job is made from.

use super::build::{self, Parts};
use super::stream::{View, asked_again};
use crate::model::Place;
use crate::model::hash::{Digest, md5_hex};
use crate::model::job::{Cron, Job};
use crate::model::template::Template;

pub(super) const ASKED: &str = "that was asked for";

/// What a Job or CronJob says it was made from.
struct Made<'a> {
    hash: Option<&'a str>,
    normal: Option<Digest>,
    restart: Option<&'a str>,
    template: Option<&'a str>,
    secrets: Option<&'a str>,
}

impl View<'_> {
    pub(super) fn parts(&self, template: &Place) -> Result<Parts<'_>, String> {
        let Some(found) = self.template(template) else {
            return Err(format!(
                "StreamingJobTemplate {template} is not there; the stream starts when it is"
            ));
        };
        let secrets = self.stream.wishes.on_secrets.then(|| self.secrets()).transpose()?;
        let secrets = secrets.flatten();
        Ok(Parts { class: self.class, stream: self.stream, template: found, secrets })
    }

    fn template(&self, place: &Place) -> Option<&Template> {
        self.index.template_at(self.class.line, place)
    }

    /// What the secrets of the stream are now; nothing can be said if one of them is not known.
    fn secrets(&self) -> Result<Option<String>, String> {
        let names = build::secret_names(self.class, self.stream)?;
        let namespace = &self.stream.place().namespace;
        let of = |name: &String| {
            let revision = self.index.secret(&Place::new(namespace, name))?;
            Some(format!("{name} {revision:?}"))
        };
        let all: Option<Vec<String>> = names.iter().map(of).collect();
        Ok(all.map(|all| md5_hex(all.join("\n").as_bytes())))
    }

    /// Why a Job is not what would be made now, if so.
    pub(super) fn changed(&self, job: &Job, template: &Place) -> Option<&'static str> {
        let made = Made {
            hash: job.hash.as_deref(),
            normal: job.normal,
            restart: job.restart.as_deref(),
            template: job.template_hash.as_deref(),
            secrets: job.secrets_hash.as_deref(),
        };
        let asked = job.state.as_deref() == Some("restart-requested");
        asked.then_some(ASKED).or_else(|| self.differs(&made, template))
    }

    pub(super) fn schedule_changed(&self, cron: &Cron, schedule: &str, template: &Place) -> bool {
        let made = Made {
            hash: cron.hash.as_deref(),
            normal: cron.normal,
            restart: cron.restart.as_deref(),
            template: cron.template_hash.as_deref(),
            secrets: cron.secrets_hash.as_deref(),
        };
        *cron.schedule != *schedule || self.differs(&made, template).is_some()
    }

    fn differs(&self, made: &Made<'_>, template: &Place) -> Option<&'static str> {
        let wishes = &self.stream.wishes;
        let same = made.hash == Some(&*self.stream.hash) || made.normal == Some(self.stream.normal);
        // Only what was noted when it was made can be told to have changed since.
        let template = || match (made.template, self.template(template)) {
            (Some(then), Some(now)) => wishes.on_template && *then != *now.hash,
            _ => false,
        };
        let secrets = || match (made.secrets, self.secrets()) {
            (Some(then), Ok(Some(now))) => wishes.on_secrets && *then != *now,
            _ => false,
        };
        match () {
            () if !same => Some("its spec has changed"),
            () if asked_again(self.stream, made.restart) => Some(ASKED),
            () if template() => Some("its template has changed"),
            () if secrets() => Some("a secret of it has changed"),
            () => None,
        }
    }
}
