//! What a bulk job shows of itself: over REST, on topics and to webhooks.

use kernel::Timestamp;
use kernel::typed::Typed;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

use crate::model::experiment::{Experiment, Type, experiment_key};
use crate::model::include::Members;
use crate::model::job::{BulkJob, JobNotice, ResultLine};
use crate::model::tenant::Tenant;
use crate::model::time;

/// The version of the interface.
pub(super) const API_VERSION: &str = "v2.0";
const REGISTERED: &str = "Experiment registered successfully with Kruize. View registered \
                          experiments at /listExperiments";

/// Whether a job without notices has an empty list of them: REST shows one, topics do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoNotices {
    Empty,
    Absent,
}

/// The summary of a job.
pub fn summary(job: &Typed<BulkJob>, no_notices: NoNotices) -> Value {
    let status = &job.status;
    let mut summary = Map::new();
    summary.insert("status".into(), job.phase.wire().into());
    summary.insert("total_experiments".into(), status.total.into());
    summary.insert("processed_experiments".into(), status.processed.into());
    if no_notices == NoNotices::Empty || !status.notices.is_empty() {
        summary.insert("notifications".into(), notifications(&status.notices));
    }
    summary.insert("input".into(), json!(job.spec.request));
    summary.insert("job_id".into(), job.id.as_str().into());
    let started = status.started_at.unwrap_or(job.created_at);
    summary.insert("job_start_time".into(), wire_time(started).into());
    if let Some(ended) = status.ended_at {
        summary.insert("job_end_time".into(), wire_time(ended).into());
    }
    Value::Object(summary)
}

/// The notices by their keys. One whose key is taken has the next that is free.
pub(super) fn notifications(notices: &[JobNotice]) -> Value {
    let mut shown = Map::new();
    for JobNotice { key, code, level, message } in notices {
        let free = (*key..).map(|key| key.to_string()).find(|key| !shown.contains_key(key));
        let notice = json!({ "type": level, "message": message, "code": code });
        shown.insert(free.unwrap_or_default(), notice);
    }
    Value::Object(shown)
}

/// A time as the wire shows it.
pub fn wire_time(time: Timestamp) -> String {
    let millis = time.millis();
    let time = jiff::Timestamp::from_millisecond(millis);
    time.map_or_else(|_| millis.to_string(), time::format)
}

/// One experiment of a job. What it shows is written straight to the serialiser: a recommendation is
/// as long as all the rest.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentView<'a> {
    pub name: &'a str,
    /// What came out; none if it was not read yet.
    pub line: Option<&'a ResultLine<'a>>,
    /// When its job began.
    pub started: Timestamp,
    /// Whose it is.
    pub tenant: Tenant<'a>,
    pub shown: &'a Members,
}

impl ExperimentView<'_> {
    fn status(&self) -> &'static str {
        match self.line {
            None => "UNPROCESSED",
            Some(line) if line.error.is_some() => "FAILED",
            Some(_) => "PROCESSED",
        }
    }

    fn history(&self) -> Value {
        let entry = |status: &str, at| json!({ "status": status, "timestamp": wire_time(at) });
        let mut history = vec![entry("UNPROCESSED", self.started)];
        history.extend(self.line.map(|line| entry(self.status(), line.at)));
        Value::Array(history)
    }

    fn notifications(&self) -> Option<Value> {
        let why = self.line?.error.as_ref()?;
        let message = format!("Not able to proceed due to. ({why})");
        Some(notifications(&[JobNotice::error(503, 503, message)]))
    }
}

/// Writes the request that would create an experiment.
pub(super) type CreateRequest = fn(&Experiment, Tenant<'_>) -> Value;

impl Serialize for ExperimentView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize_with(create_request, serializer)
    }
}

impl ExperimentView<'_> {
    pub(super) fn serialize_with<S: Serializer>(
        &self,
        request: CreateRequest,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let shows = |member: &str| self.shown.shows(member);
        if shows("name") {
            map.serialize_entry("name", self.name)?;
        }
        if shows("status") {
            map.serialize_entry("status", self.status())?;
        }
        if shows("apis") {
            map.serialize_entry("apis", &Calls(self, request))?;
        }
        if shows("status_history") {
            map.serialize_entry("status_history", &self.history())?;
        }
        if let (true, Some(notifications)) = (shows("notifications"), self.notifications()) {
            map.serialize_entry("notifications", &notifications)?;
        }
        map.end()
    }
}

/// The two calls that the existing service makes to itself for each experiment.
struct Calls<'a>(&'a ExperimentView<'a>, CreateRequest);

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let shown = self.0.shown;
        if shown.shows("create") {
            map.serialize_entry("create", &Create(self.0, self.1))?;
        }
        if shown.shows("recommendations") {
            map.serialize_entry("recommendations", &Recommendations(self.0))?;
        }
        map.end()
    }
}

struct Create<'a>(&'a ExperimentView<'a>, CreateRequest);

impl Serialize for Create<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ExperimentView { name, line, tenant, shown, .. } = self.0;
        let mut map = serializer.serialize_map(None)?;
        if let Some(line) = line {
            if shown.shows("response") {
                let response = if line.existing {
                    outcome(409, &format!("Experiment name already exists: {name}"))
                } else {
                    outcome(201, REGISTERED)
                };
                map.serialize_entry("response", &response)?;
            }
            if shown.shows("request") {
                map.serialize_entry("request", &self.1(&line.experiment, *tenant))?;
            }
        }
        map.end()
    }
}

struct Recommendations<'a>(&'a ExperimentView<'a>);

impl Serialize for Recommendations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let recommended = self.0.line.and_then(|line| line.recommendation);
        if let Some(recommendation) = recommended.filter(|_| self.0.shown.shows("response")) {
            map.serialize_entry("response", &[recommendation])?;
        }
        map.end()
    }
}

/// What was done, or why it was not, as the existing service answers.
pub fn outcome(status: u16, message: &str) -> Value {
    let label = if status < 400 { "SUCCESS" } else { "ERROR" };
    json!({ "message": message, "httpcode": status, "documentationLink": "", "status": label })
}

/// The request that would create the experiment, as the existing service remembers it.
fn create_request(experiment: &Experiment, tenant: Tenant<'_>) -> Value {
    let minutes = experiment.measurement_min;
    let is_namespace = experiment.experiment_type == Type::Namespace;
    let mut request = json!({
        "apiVersion": API_VERSION,
        "experimentName": experiment.name,
        "clusterName": experiment.cluster,
        "performanceProfile": experiment.performance_profile,
    });
    let rest = json!({
        "mode": experiment.mode,
        "targetCluster": experiment.target_cluster,
        "trialSettings": {
            "measurement_durationMinutes": format!("{minutes}min"),
            "measurement_durationMinutes_inDouble": f64::from(minutes),
        },
        "recommendationSettings": { "threshold": experiment.threshold },
        "datasource": experiment.datasource,
        "experimentType": if is_namespace { "NAMESPACE" } else { "CONTAINER" },
        "status": "IN_PROGRESS",
        "experiment_id": experiment_key(tenant, &experiment.name).id(),
        "kubernetesObjects": experiment.objects,
        "namespaceExperiment": is_namespace,
        "containerExperiment": !is_namespace,
    });
    let fields = request.as_object_mut().expect("it was made as an object");
    if let Some(profile) = &experiment.metadata_profile {
        fields.insert("metadataProfile".into(), profile.as_str().into());
    }
    if let Value::Object(rest) = rest {
        fields.extend(rest.into_iter().filter(|(_, value)| !value.is_null()));
    }
    request
}
