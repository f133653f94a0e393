//! Builds the manifests of Jobs, CronJobs, initial requests and events.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::action::{K8sEvent, Mode};
use crate::model::backfill_request::BackfillRequest;
use crate::model::class::Class;
use crate::model::hash::{combined, go_compatible_json, md5_hex};
use crate::model::meta::seconds;
use crate::model::stream::Stream;
use crate::model::template::Template;
use crate::model::{
    API_GROUP, API_PLURAL, API_VERSION, BACKFILLING, CHECKSUM, CONFIGURATION_HASH, CrdVersion,
    GROUP, RESTART, SECRETS_HASH, STREAM_ID, STREAM_KIND, TEMPLATE_HASH,
};

/// The event source that existing dashboards filter by.
pub const COMPONENT: &str = "arcane-operator";

/// Everything that a Job is made from.
#[derive(Debug, Clone)]
pub struct JobInputs<'a> {
    pub class: &'a Class,
    pub stream: &'a Stream,
    pub template: &'a Template,
    /// The hash of the secrets, if the Job is to record it.
    pub secrets: Option<String>,
}

/// The manifest of a Job; or an error that names the invalid field.
pub fn job_manifest(
    job_inputs: &JobInputs<'_>,
    mode: &Mode,
    request: Option<&BackfillRequest>,
) -> Result<Value, String> {
    let JobInputs { class, stream, .. } = job_inputs;
    let backfilling = matches!(mode, Mode::Backfill(_));
    let mut made = job_inputs.template_job()?;
    let mut labels = made.take("labels");
    labels.insert(STREAM_ID.into(), json!(stream.key.object_name.name));
    labels.insert(STREAM_KIND.into(), json!(class.kind));
    labels.insert(BACKFILLING.into(), json!(backfilling.to_string()));
    let annotations =
        job_inputs.annotations(made.take("annotations"), &configuration_hash(stream, request));
    let mut variables = job_inputs.variables(request.map(BackfillRequest::json))?;
    if let Some(request) = request
        && let Some(payload) = &request.payload
    {
        let spec: Value = serde_json::from_str(&stream.spec).unwrap_or_default();
        let over = request.over(&spec).unwrap_or_default();
        variables.push(variable("STREAMCONTEXT_OVERRIDE", go_compatible_json(payload)));
        variables.push(variable("STREAMCONTEXT_SPEC_OVERRIDE", go_compatible_json(&over)));
    }
    variables.push(variable("STREAMCONTEXT__BACKFILL", backfilling.to_string()));
    if let Mode::Backfill(Some(id)) = mode {
        variables.push(variable("STREAMCONTEXT__BACKFILL_ID", id.to_string()));
    }
    job_inputs.fill(&mut made.spec, &variables)?;
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": job_inputs.metadata(labels, annotations),
        "spec": made.spec,
    }))
}

/// The manifest of a CronJob. Each run is a backfill whose id is the name of its Job.
pub fn cron_job_manifest(job_inputs: &JobInputs<'_>, schedule: &str) -> Result<Value, String> {
    let mut made = job_inputs.template_job()?;
    let no_request = json!({ "streamClass": "", "streamId": "" });
    let mut variables = job_inputs.variables(Some(go_compatible_json(&no_request)))?;
    variables.push(variable("STREAMCONTEXT__BACKFILL", "true".into()));
    variables.push(json!({
        "name": "STREAMCONTEXT__BACKFILL_ID",
        "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['job-name']" } },
    }));
    job_inputs.fill(&mut made.spec, &variables)?;
    let annotations = job_inputs.annotations(made.take("annotations"), &job_inputs.stream.hash);
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": job_inputs.metadata(made.take("labels"), annotations),
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": { "spec": made.spec },
        },
    }))
}

/// The hash of the configuration of a Job.
pub fn configuration_hash(stream: &Stream, request: Option<&BackfillRequest>) -> String {
    match request {
        Some(request) => combined(&stream.hash, &md5_hex(request.json().as_bytes())),
        None => stream.hash.to_string(),
    }
}

/// The name of a stream's initial request, derived from the stream's uid.
pub fn initial_request_name(stream: &Stream) -> String {
    let mark = md5_hex(stream.uid.as_bytes());
    format!("{}-initial-backfill-{}", stream.key.object_name.name, &mark[..5])
}

pub fn initial_request_manifest(class: &Class, stream: &Stream) -> Value {
    let object_name = &stream.key.object_name;
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "BackfillRequest",
        "metadata": {
            "name": initial_request_name(stream),
            "namespace": object_name.namespace,
            "ownerReferences": [owner(class, stream, false)],
        },
        "spec": { "streamClass": class.name, "streamId": object_name.name },
    })
}

fn owner(class: &Class, stream: &Stream, controller: bool) -> Value {
    json!({
        "apiVersion": class.api_version(),
        "kind": class.kind,
        "name": stream.key.object_name.name,
        "uid": stream.uid,
        "controller": controller,
    })
}

/// The object that an event is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

pub fn event_manifest(subject: Subject<'_>, event: &K8sEvent, now: Timestamp) -> Value {
    let namespace = match subject.namespace {
        "" => "default",
        namespace => namespace,
    };
    let time = seconds(now);
    let message: String = event.message.chars().take(1000).collect();
    let mut about = json!({
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "name": subject.name,
        "uid": subject.uid,
    });
    if !subject.namespace.is_empty() {
        about["namespace"] = json!(subject.namespace);
    }
    // Leaves room for the suffix within the longest name that is allowed.
    let name: String = subject.name.chars().take(200).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{name}.{:x}", now.as_nanosecond()),
            "namespace": namespace,
        },
        "involvedObject": about,
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "message": message,
        "source": { "component": COMPONENT },
        "reportingComponent": COMPONENT,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}

/// The Job in the template.
struct TemplateJob {
    metadata: Map<String, Value>,
    spec: Value,
}

impl TemplateJob {
    fn take(&mut self, part: &str) -> Map<String, Value> {
        match self.metadata.remove(part) {
            Some(Value::Object(texts)) => texts,
            _ => Map::new(),
        }
    }
}

impl JobInputs<'_> {
    fn template_job(&self) -> Result<TemplateJob, String> {
        let object_name = &self.template.object_name;
        let job = self.template.job.as_ref();
        let job = job.map_err(|why| format!("StreamingJobTemplate {object_name}: {why}"))?;
        let metadata = job["metadata"].as_object().cloned().unwrap_or_default();
        Ok(TemplateJob { metadata, spec: job["spec"].clone() })
    }

    fn metadata(&self, labels: Map<String, Value>, annotations: Map<String, Value>) -> Value {
        let object_name = &self.stream.key.object_name;
        let mut metadata = json!({ "name": object_name.name, "namespace": object_name.namespace });
        if !labels.is_empty() {
            metadata["labels"] = Value::Object(labels);
        }
        metadata["annotations"] = Value::Object(annotations);
        metadata["ownerReferences"] = json!([owner(self.class, self.stream, true)]);
        metadata
    }

    fn annotations(&self, mut all: Map<String, Value>, hash: &str) -> Map<String, Value> {
        let mut add = |name: &str, value: &str| all.insert(name.into(), json!(value));
        match self.class.crd_version {
            CrdVersion::V1 => {
                add(CONFIGURATION_HASH, hash);
            }
            CrdVersion::V1Beta1 => {
                add(CHECKSUM, &self.stream.hash);
                add(API_GROUP, &self.class.group);
                add(API_VERSION, &self.class.version);
                add(API_PLURAL, &self.class.plural);
            }
        }
        let annotations = &self.stream.annotations;
        if let Some(restart) = &annotations.restart {
            add(RESTART, restart);
        }
        if annotations.on_template {
            add(TEMPLATE_HASH, &self.template.hash);
        }
        if let Some(secrets) = &self.secrets {
            add(SECRETS_HASH, secrets);
        }
        all
    }

    /// The environment variables of a stream's containers.
    fn variables(&self, over: Option<String>) -> Result<Vec<Value>, String> {
        let spec = match self.class.crd_version {
            CrdVersion::V1 => self.stream.spec.to_string(),
            CrdVersion::V1Beta1 => {
                let mut spec: Value = serde_json::from_str(&self.stream.spec).unwrap_or_default();
                if let Value::Object(fields) = &mut spec {
                    fields.retain(|name, _| !self.class.secret_refs.contains(name));
                }
                go_compatible_json(&spec)
            }
        };
        // Linux does not start a program with a longer variable.
        if spec.len() > 131_000 {
            return Err(format!(
                "spec has {} bytes as JSON; a Job can be given at most 131,000 in a variable",
                spec.len()
            ));
        }
        let mut all = vec![
            variable("STREAMCONTEXT__STREAM_ID", self.stream.key.object_name.name.to_string()),
            variable("STREAMCONTEXT__STREAM_KIND", self.class.kind.to_string()),
            variable("STREAMCONTEXT__SPEC", spec),
        ];
        all.extend(over.map(|over| variable("STREAMCONTEXT__OVERRIDE", over)));
        Ok(all)
    }

    /// Adds the variables and the secrets to every container.
    fn fill(&self, spec: &mut Value, variables: &[Value]) -> Result<(), String> {
        let secrets = secret_names(self.class, self.stream)?;
        let template = &self.template.object_name;
        let containers = spec.pointer_mut("/template/spec/containers");
        let Some(Value::Array(containers)) = containers else { return Ok(()) };
        for container in containers {
            let Value::Object(container) = container else {
                return Err(format!(
                    "StreamingJobTemplate {template}: a container is not an object"
                ));
            };
            let env = list(container, "env", template)?;
            for own in ["STREAMCONTEXT__STREAM_ID", "STREAMCONTEXT__STREAM_KIND"] {
                if env.iter().any(|there| there["name"] == own) {
                    return Err(format!(
                        "StreamingJobTemplate {template} sets {own} itself; remove it: the \
                         operator sets it"
                    ));
                }
            }
            for variable in variables {
                match env.iter_mut().find(|there| there["name"] == variable["name"]) {
                    Some(there) => *there = variable.clone(),
                    None => env.push(variable.clone()),
                }
            }
            if !secrets.is_empty() {
                let from = list(container, "envFrom", template)?;
                from.extend(secrets.iter().map(|name| json!({ "secretRef": { "name": name } })));
            }
        }
        Ok(())
    }
}

/// The names of the secrets in the fields that the class lists.
pub fn secret_names(class: &Class, stream: &Stream) -> Result<Vec<String>, String> {
    if class.secret_refs.is_empty() {
        return Ok(Vec::new());
    }
    let spec: Value = serde_json::from_str(&stream.spec).unwrap_or_default();
    let name = |field: &String| match spec[field]["name"].as_str() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(format!(
            "spec.{field}.name is missing: the name of a Secret, as StreamClass {} asks",
            class.name
        )),
    };
    class.secret_refs.iter().map(name).collect()
}

fn list<'c>(
    container: &'c mut Map<String, Value>,
    name: &str,
    template: &crate::model::NamespacedName,
) -> Result<&'c mut Vec<Value>, String> {
    let there = container.entry(name).or_insert(Value::Null);
    if there.is_null() {
        *there = Value::Array(Vec::new());
    }
    match there {
        Value::Array(items) => Ok(items),
        _ => Err(format!("StreamingJobTemplate {template}: {name} of a container is not a list")),
    }
}

fn variable(name: &str, value: String) -> Value {
    json!({ "name": name, "value": value })
}
