//! What the webhook of a job is sent: an array of one element, the whole job, with the names that the
//! existing service has only here.

use kernel::Timestamp;
use kernel::typed::Typed;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::job::{API_VERSION, ExperimentView, notifications, wire_time};
use crate::model::experiment::{Experiment, experiment_key};
use crate::model::include::Members;
use crate::model::job::{BulkJob, ResultLine};
use crate::model::notification::{Delivery, Notification};
use crate::model::tenant::Tenant;

/// How far the webhook is, as `GET /bulk` shows it.
pub fn webhook(notification: &Notification) -> Value {
    let mut shown = json!({ "status": notification.delivery.wire() });
    if let Some(why) = &notification.error {
        let level = if notification.delivery == Delivery::Failed { "ERROR" } else { "WARNING" };
        let message = format!("{why} (tries: {})", notification.tries);
        shown["notifications"] = json!({ "type": level, "message": message, "code": 503 });
    }
    shown
}

/// The body, written piece by piece.
pub struct Body<'a> {
    job: &'a Typed<BulkJob>,
    text: Vec<u8>,
}

impl<'a> Body<'a> {
    pub fn new(job: &'a Typed<BulkJob>) -> Body<'a> {
        let mut body = Body { job, text: b"[{\"summary\":".to_vec() };
        body.write(&summary(job));
        body
    }

    /// Begins the experiments.
    pub fn experiments(mut self) -> Self {
        self.text.extend(b",\"experiments\":{");
        self
    }

    pub fn add(&mut self, line: &ResultLine<'_>) {
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
        let name = line.experiment.name.as_str();
        self.write(name);
        self.text.push(b':');
        let started = self.job.status.started_at.unwrap_or(self.job.created_at);
        self.write(&Sent(ExperimentView {
            name,
            line: Some(line),
            started,
            tenant: Tenant::of_object(self.job),
            shown: &Members::All,
        }));
    }

    /// Ends it after all experiments.
    pub fn finish(mut self, metadata: Option<&Value>) -> Vec<u8> {
        self.text.extend(b"},\"webhook\":{\"status\":\"IN_PROGRESS\"}");
        if let Some(metadata) = metadata {
            self.text.extend(b",\"metadata\":");
            self.write(metadata);
        }
        self.text.extend(b"}]");
        self.text
    }

    /// Ends it without any, and says why.
    pub fn without_experiments(mut self, max: u32) -> Vec<u8> {
        let message = format!(
            "{} experiments are more than {max} (advisor.webhook_experiments_max): read them with \
             GET /bulk?job_id={}&include=experiments",
            self.job.status.total, self.job.id
        );
        let notice = json!({ "type": "INFO", "message": message, "code": 413 });
        self.text.extend(b",\"webhook\":");
        self.write(&json!({ "status": "IN_PROGRESS", "notifications": notice }));
        self.text.extend(b"}]");
        self.text
    }

    fn write(&mut self, value: &(impl Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.text, value).expect("our own types serialise");
    }
}

/// The summary has other names than over REST.
fn summary(job: &Typed<BulkJob>) -> Value {
    let status = &job.status;
    let time = |time: Timestamp| Value::from(wire_time(time));
    let mut summary = Map::new();
    summary.insert("jobID".into(), job.id.as_str().into());
    summary.insert("status".into(), job.phase.wire().into());
    summary.insert("total_experiments".into(), status.total.into());
    summary.insert("processed_experiments".into(), status.processed.into());
    if !status.notices.is_empty() {
        summary.insert("notifications".into(), notifications(&status.notices));
    }
    summary.insert("startTime".into(), time(status.started_at.unwrap_or(job.created_at)));
    if let Some(ended) = status.ended_at {
        summary.insert("endTime".into(), time(ended));
    }
    summary.insert("input".into(), json!(job.spec.request));
    Value::Object(summary)
}

/// An experiment with its request as `createExperiment` reads it.
struct Sent<'a>(ExperimentView<'a>);

impl Serialize for Sent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_with(create_request, serializer)
    }
}

/// As `createExperiment` reads it.
fn create_request(experiment: &Experiment, tenant: Tenant<'_>) -> Value {
    let mut request = json!({
        "cluster_name": experiment.cluster,
        "performance_profile": experiment.performance_profile,
        "metadata_profile": experiment.metadata_profile,
        "mode": experiment.mode,
        "target_cluster": experiment.target_cluster,
        "kubernetes_objects": experiment.objects,
        "trial_settings": { "measurement_duration": format!("{}min", experiment.measurement_min) },
        "recommendation_settings": { "threshold": experiment.threshold },
        "datasource": experiment.datasource,
        "experiment_type": experiment.experiment_type,
        "status": "IN_PROGRESS",
        "experiment_id": experiment_key(tenant, &experiment.name).id(),
        "version": API_VERSION,
        "experiment_name": experiment.name,
    });
    if let Some(request) = request.as_object_mut() {
        request.retain(|_, value| !value.is_null());
    }
    request
}
