//! What jobs publish: recommendations, errors and summaries, each event at most one message. The
//! summary of a job comes after all others of it.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Bytes;
use kernel::log::Event;
use kernel::relay::{Destination, Message, Renderer};
use kernel::typed::Typed;
use kernel::{App, Class, Error, Key, Object, Result};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use crate::model::experiment::EXPERIMENT;
use crate::model::include::Include;
use crate::model::job::{
    BulkJob, FAILING, JOB, JobPhase, ResultLine, ResultRef, job_key, job_of_shard,
};
use crate::model::tenant::Tenant;
use crate::model::topics::{MessageKey, Topics};
use crate::model::wire::{ExperimentView, NoNotices, summary};
use crate::store::{self, Results};

/// The name of the renderer, which is that of the existing service.
pub const NAME: &str = "kruize";

/// The results of a shard are up to some megabytes; few are published at the same time.
const SHARDS_MAX: usize = 8;
const JOBS_MAX: usize = 100;

/// Makes the messages of all jobs.
pub struct JobRenderer {
    app: App,
    topics: Topics,
    recommendations: Include,
    error: Include,
    summary: Include,
    shards: Latest<Key, Results>,
    /// As their own last events have them: the counts of a message are those of its moment.
    jobs: Latest<String, Known>,
}

/// A job, and the beginnings of the messages of its experiments.
struct Known {
    job: Typed<BulkJob>,
    recommendations: Vec<u8>,
    error: Vec<u8>,
}

/// Where the last result of an experiment is.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    result: Option<ResultRef>,
    #[serde(default)]
    failed: Option<ResultRef>,
}

#[async_trait]
impl Renderer for JobRenderer {
    fn name(&self) -> &str {
        NAME
    }

    async fn render(&self, event: &Event) -> Result<Vec<Message>> {
        let message = match event.subject.kind() {
            EXPERIMENT => self.of_experiment(event).await?,
            JOB => self.of_job(event)?,
            _ => None,
        };
        Ok(message.into_iter().collect())
    }
}

impl JobRenderer {
    pub fn new(app: &App, topics: &Topics) -> JobRenderer {
        let include = |text: &str| text.parse().unwrap_or_default();
        JobRenderer {
            app: app.clone(),
            recommendations: include(&topics.recommendations_include),
            error: include(&topics.error_include),
            summary: include(&topics.summary_include),
            topics: topics.clone(),
            shards: Latest::new(SHARDS_MAX),
            jobs: Latest::new(JOBS_MAX),
        }
    }

    async fn of_experiment(&self, event: &Event) -> Result<Option<Message>> {
        let failed = match action(event) {
            "recommended" | "changed" => false,
            "failed" => true,
            _ => return Ok(None),
        };
        let topic = if failed { &self.topics.error } else { &self.topics.recommendations };
        if !self.topics.publishes(topic) {
            return Ok(None);
        }
        let experiment: Object = event.data.parse()?;
        let written: Written = experiment.status.parse()?;
        let lost = || Error::internal("an experiment", "its result is not in its status");
        let result = if failed { written.failed } else { written.result }.ok_or_else(lost)?;
        // Of one that was not part of a job only those who asked for it are interested in the result.
        let Some(id) = job_of_shard(&result.of).map(str::to_owned) else { return Ok(None) };
        let (Some(known), Some(results)) =
            (self.job(&id).await?, self.results(&id, &result).await?)
        else {
            return Ok(None);
        };
        let lost = || Error::internal(format!("the results of {}", result.of), "a line is missing");
        let line = results.line(result.line as usize)?.ok_or_else(lost)?;
        let key = match self.topics.key {
            MessageKey::Experiment => line.experiment.name.clone(),
            MessageKey::Job => id,
            MessageKey::None => String::new(),
        };
        let body = if failed {
            with_experiment(&known.error, &known.job, &line, &self.error)
        } else {
            with_experiment(&known.recommendations, &known.job, &line, &self.recommendations)
        };
        Ok(Some(message(event, topic, key, body)))
    }

    fn of_job(&self, event: &Event) -> Result<Option<Message>> {
        let object: Object = event.data.parse()?;
        let mut job = Typed::<BulkJob>::from_object(&object)?;
        let (topic, include, is_last) = match action(event) {
            FAILING => (&self.topics.error, &self.error, false),
            "completed" | "failed" | "cancelled" => (&self.topics.summary, &self.summary, true),
            _ => {
                self.learn(job);
                return Ok(None);
            }
        };
        if !self.topics.publishes(topic) {
            return Ok(None);
        }
        let key = match self.topics.key {
            MessageKey::Experiment | MessageKey::Job => job.id.clone(),
            MessageKey::None => String::new(),
        };
        if !is_last {
            // It has, to those who read this.
            job.phase = JobPhase::Failed;
        }
        let body = shown(&job, include).into();
        Ok(Some(Message { after_all: is_last, ..message(event, topic, key, body) }))
    }

    /// Remembers a job for the messages of its experiments, which come before its end.
    fn learn(&self, mut job: Typed<BulkJob>) -> Arc<Known> {
        if job.phase.is_final() {
            job.phase = JobPhase::Running;
            job.status.ended_at = None;
        }
        let known = Arc::new(Known {
            recommendations: shown(&job, &self.recommendations),
            error: shown(&job, &self.error),
            job,
        });
        self.jobs.put(known.job.id.clone(), known.clone());
        known
    }

    /// The job of an experiment's event: as its own last event before that says, or as it is now. None if
    /// it was deleted by its user, who wants no more of it.
    async fn job(&self, id: &str) -> Result<Option<Arc<Known>>> {
        if let Some(known) = self.jobs.get(id) {
            return Ok(Some(known));
        }
        Ok(self.stored(id).await?.map(|job| self.learn(job)))
    }

    /// The job, unless its user has deleted it.
    async fn stored(&self, id: &str) -> Result<Option<Typed<BulkJob>>> {
        let object = self.app.store.object(&job_key(id)).await?.ok_or_else(|| gone(id))?;
        let job = Typed::<BulkJob>::from_object(&object)?;
        Ok((!job.spec.deleted).then_some(job))
    }

    /// None if the user has deleted the job.
    async fn results(&self, job: &str, result: &ResultRef) -> Result<Option<Arc<Results>>> {
        if let Some(results) = self.shards.get(&result.of) {
            return Ok(Some(results));
        }
        let Some(results) = store::results(&self.app, &result.of).await? else {
            return self.stored(job).await?.map_or(Ok(None), |_| Err(gone(job)));
        };
        let results = Arc::new(results);
        self.shards.put(result.of.clone(), results.clone());
        Ok(Some(results))
    }
}

/// What is shown of a job without its experiments.
fn shown(job: &Typed<BulkJob>, include: &Include) -> Vec<u8> {
    let parts = json!({ "summary": summary(job, NoNotices::Absent) });
    serde_json::to_vec(&include.filter(parts)).expect("our own types serialise")
}

/// Adds an experiment to what is shown of its job.
fn with_experiment(
    job_shown: &[u8],
    job: &Typed<BulkJob>,
    line: &ResultLine<'_>,
    include: &Include,
) -> Bytes {
    let Some(members) = include.part("experiments") else {
        return Bytes::copy_from_slice(job_shown);
    };
    let name = line.experiment.name.as_str();
    let view = ExperimentView {
        name,
        line: Some(line),
        started: job.status.started_at.unwrap_or(job.created_at),
        tenant: Tenant::of_object(job),
        shown: members,
    };
    let recommended = line.recommendation.map_or(0, |json| json.get().len());
    let mut text = Vec::with_capacity(job_shown.len() + recommended + 2048);
    text.extend(job_shown.strip_suffix(b"}").unwrap_or(job_shown));
    let comma = if text.len() > 1 { "," } else { "" };
    text.extend(format!("{comma}\"experiments\":{{").as_bytes());
    serde_json::to_writer(&mut text, name).expect("our own types serialise");
    text.push(b':');
    serde_json::to_writer(&mut text, &view).expect("our own types serialise");
    text.extend(b"}}");
    text.into()
}

/// `recommended` of `mainstay.experiment.recommended`.
fn action(event: &Event) -> &str {
    event.kind.rsplit('.').next().unwrap_or_default()
}

fn message(event: &Event, topic: &str, key: String, body: Bytes) -> Message {
    let trace = event.cause.trace.map(|trace| ("traceparent".into(), trace.to_string()));
    Message {
        seq: event.seq,
        to: Destination { name: topic.to_owned(), routing_key: topic.to_owned() },
        key,
        content_type: "application/json",
        attributes: trace.into_iter().collect(),
        body,
        after_all: false,
    }
}

/// No other try will find it.
fn gone(job: &str) -> Error {
    let why = "were removed before they were published (advisor.jobs_days)";
    Error::coded(404, Class::NotFound, format!("the results of bulk job {job} {why}"))
}

/// The values that were put last, up to a number.
struct Latest<K, V> {
    max: usize,
    values: Mutex<VecDeque<(K, Arc<V>)>>,
}

impl<K: PartialEq, V> Latest<K, V> {
    fn new(max: usize) -> Latest<K, V> {
        Latest { max, values: Mutex::default() }
    }

    fn get<Q: PartialEq<K> + ?Sized>(&self, key: &Q) -> Option<Arc<V>> {
        let values = self.values.lock();
        values.iter().find(|(other, _)| key == other).map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: Arc<V>) {
        let mut values = self.values.lock();
        values.retain(|(other, _)| *other != key);
        if values.len() == self.max {
            values.pop_back();
        }
        values.push_front((key, value));
    }
}
