//! Parses the part of a stream's spec that is for the operator, in its three layouts.

use serde_json::Value;

use super::{CrdVersion, NamespacedName};

/// How a stream is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub suspended: bool,
    pub backend: Option<Backend>,
    /// The template of backfill Jobs.
    pub backfill: Option<NamespacedName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A Job that is kept running.
    ChangeCapture { template: NamespacedName },
    /// A CronJob.
    Batch { schedule: Box<str>, template: NamespacedName },
}

impl Backend {
    pub fn template(&self) -> &NamespacedName {
        match self {
            Backend::ChangeCapture { template } | Backend::Batch { template, .. } => template,
        }
    }
}

/// An invalid field and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {what}")]
pub struct Problem {
    pub field: String,
    pub what: String,
}

impl Problem {
    fn new(field: impl Into<String>, what: impl Into<String>) -> Problem {
        Problem { field: field.into(), what: what.into() }
    }
}

/// A field that is null counts as absent: charts write such fields.
fn part<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.get(name).filter(|part| !part.is_null())
}

pub fn read(spec: &Value, namespace: &str, crd_version: CrdVersion) -> Result<Execution, Problem> {
    if !spec.is_object() {
        return Err(Problem::new("spec", "is missing: it says what to stream and how"));
    }
    let reader = Reader { namespace };
    let execution = part(spec, "execution");
    let version = execution.and_then(|execution| part(execution, "layoutVersion"));
    match (version, execution) {
        (Some(Value::String(version)), Some(execution)) if !version.is_empty() => {
            match version.as_str() {
                "v1" => reader.v1(execution),
                "v2" => reader.v2(execution),
                other => Err(Problem::new(
                    "spec.execution.layoutVersion",
                    format!("is {other:?}; it can be \"v1\" or \"v2\", or left out"),
                )),
            }
        }
        (None | Some(Value::String(_)), _) => reader.flat(spec, crd_version),
        (Some(_), _) => Err(Problem::new("spec.execution.layoutVersion", "must be a text")),
    }
}

struct Reader<'a> {
    /// The stream's namespace, the default for references to templates.
    namespace: &'a str,
}

impl Reader<'_> {
    fn flat(&self, spec: &Value, crd_version: CrdVersion) -> Result<Execution, Problem> {
        let suspended = match (part(spec, "suspended"), crd_version) {
            (Some(value), CrdVersion::V1) => boolean(value, "spec.suspended")?,
            (None, CrdVersion::V1) => {
                return Err(Problem::new(
                    "spec.suspended",
                    "is missing: true or false (or give spec.execution.layoutVersion)",
                ));
            }
            // An annotation suspends streams of v1beta1.
            (_, CrdVersion::V1Beta1) => false,
        };
        let template = self.template(spec, "jobTemplateRef", "spec")?;
        // The field's original name.
        let old = part(spec, "reloadingJobTemplateRef").is_some();
        let name = if old && part(spec, "backfillJobTemplateRef").is_none() {
            "reloadingJobTemplateRef"
        } else {
            "backfillJobTemplateRef"
        };
        let backfill = match (part(spec, name), crd_version) {
            (None, CrdVersion::V1Beta1) => template.clone(),
            _ => self.template(spec, name, "spec")?,
        };
        Ok(Execution {
            suspended,
            backend: Some(Backend::ChangeCapture { template }),
            backfill: Some(backfill),
        })
    }

    fn v1(&self, execution: &Value) -> Result<Execution, Problem> {
        Ok(Execution {
            suspended: suspended(execution)?,
            backend: self.backend(execution)?.map(|(backend, _)| backend),
            backfill: Some(self.template(execution, "backfillJobTemplateRef", "spec.execution")?),
        })
    }

    fn v2(&self, execution: &Value) -> Result<Execution, Problem> {
        let suspended = suspended(execution)?;
        let Some((backend, fields)) = self.backend(execution)? else {
            return Ok(Execution { suspended, backend: None, backfill: None });
        };
        let within = "spec.execution.streamingBackend.changeCapture";
        let capture = part(&execution["streamingBackend"], "changeCapture");
        let backfill = match (&backend, capture) {
            (Backend::ChangeCapture { .. }, _) => {
                self.template(fields, "backfillJobTemplateRef", within)?
            }
            (Backend::Batch { .. }, Some(capture))
                if part(capture, "backfillJobTemplateRef").is_some() =>
            {
                self.template(capture, "backfillJobTemplateRef", within)?
            }
            // All runs of a batch are backfills, so its own template is the default.
            (Backend::Batch { template, .. }, _) => template.clone(),
        };
        Ok(Execution { suspended, backend: Some(backend), backfill: Some(backfill) })
    }

    /// The backend and its fields. `batch` takes precedence over `changeCapture`.
    fn backend<'v>(&self, execution: &'v Value) -> Result<Option<(Backend, &'v Value)>, Problem> {
        let Some(backend) = part(execution, "streamingBackend") else { return Ok(None) };
        let at = |name: &str| format!("spec.execution.streamingBackend.{name}");
        if let Some(batch) = part(backend, "batch") {
            let within = at("batch");
            let schedule = match part(batch, "schedule") {
                Some(Value::String(schedule)) if !schedule.trim().is_empty() => schedule,
                _ => {
                    let what = "is missing: a schedule as cron writes them, such as \"0 * * * *\"";
                    return Err(Problem::new(format!("{within}.schedule"), what));
                }
            };
            let template = self.template(batch, "jobTemplateRef", &within)?;
            let schedule = schedule.as_str().into();
            return Ok(Some((Backend::Batch { schedule, template }, batch)));
        }
        let Some(capture) = part(backend, "changeCapture") else { return Ok(None) };
        let template = self.template(capture, "jobTemplateRef", &at("changeCapture"))?;
        Ok(Some((Backend::ChangeCapture { template }, capture)))
    }

    fn template(
        &self,
        fields: &Value,
        name: &str,
        within: &str,
    ) -> Result<NamespacedName, Problem> {
        let field = format!("{within}.{name}");
        let text = |part_name: &str| match part(&fields[name], part_name) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(Problem::new(format!("{field}.{part_name}"), "must be a text")),
        };
        let template = text("name")?;
        if template.is_empty() {
            let what = "is missing: the name of a StreamingJobTemplate";
            return Err(Problem::new(format!("{field}.name"), what));
        }
        let namespace = match text("namespace")? {
            "" => self.namespace,
            namespace => namespace,
        };
        Ok(NamespacedName::new(namespace, template))
    }
}

fn suspended(execution: &Value) -> Result<bool, Problem> {
    match part(execution, "suspended") {
        Some(value) => boolean(value, "spec.execution.suspended"),
        None => Ok(false),
    }
}

fn boolean(value: &Value, field: &str) -> Result<bool, Problem> {
    value.as_bool().ok_or_else(|| Problem::new(field, "must be true or false"))
}
