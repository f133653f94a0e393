//! The records of `updateResults`. Each is accepted or refused alone: one that is wrong does not keep
//! the others out.

use serde_json::{Value, json};

use super::bucket::{Bucket, CONTAINER, Measured, Measurement, NAMESPACE, Uploaded};
use super::checked::{experiment_name, list, name, number, required};
use super::experiment::{Experiment, KubernetesObject, Type};
use super::fields::{Fields, Invalid};
use super::time;
use super::wire::outcome;

/// Of one container: each metric once, and some that are repeated.
const METRICS_MAX: usize = 50;
const CONTAINERS_MAX: usize = 100;
/// How far the length of an interval may be from the measurement duration.
const TOLERANCE_MS: i64 = 30_000;
/// A text that is longer is not repeated in the answer.
const ECHO_CHARS_MAX: usize = 600;

/// One interval of one experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Upload {
    pub experiment: String,
    pub bucket: Bucket,
    /// What the results are of. Those of a namespace have neither type nor name.
    object: Object,
}

#[derive(Debug, Clone, PartialEq)]
struct Object {
    experiment_type: Type,
    workload_type: Option<String>,
    name: Option<String>,
    namespace: String,
}

/// Why a record is not saved, with what identifies it.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    record: Record,
    status: u16,
    message: String,
}

/// What identifies a record in the answer if it is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its place in the request.
    index: usize,
    shown: Value,
}

impl Record {
    /// Reads a record.
    pub fn read(index: usize, value: Value) -> (Record, Result<Upload, Invalid>) {
        let text = |field: &str| {
            let text = value.get(field)?.as_str()?;
            (text.chars().count() <= ECHO_CHARS_MAX).then(|| text.to_owned())
        };
        let mut shown = json!({});
        for field in ["interval_start_time", "interval_end_time", "version", "experiment_name"] {
            if let Some(text) = text(field) {
                shown[field] = text.into();
            }
        }
        (Record { index, shown }, Upload::read(value))
    }

    pub fn refuse(self, status: u16, message: impl Into<String>) -> Refused {
        Refused { record: self, status, message: message.into() }
    }
}

impl Refused {
    /// The place of the record in the request.
    pub fn index(&self) -> usize {
        self.record.index
    }

    /// As the existing service answers it.
    pub fn to_json(&self) -> Value {
        let mut shown = self.record.shown.clone();
        shown["errors"] = json!([outcome(self.status, &self.message)]);
        shown
    }
}

impl Upload {
    fn read(value: Value) -> Result<Upload, Invalid> {
        let mut fields = Fields::new("", value)?;
        let experiment = fields.read("experiment_name", experiment_name)?;
        let experiment = required("experiment_name", experiment)?;
        let start_ms = fields.read("interval_start_time", time_ms)?;
        let start_ms = required("interval_start_time", start_ms)?;
        let end_ms = required("interval_end_time", fields.read("interval_end_time", time_ms)?)?;
        if start_ms >= end_ms {
            return Err(Invalid::new("", "The Start time should precede the End time!"));
        }
        let objects =
            fields.read("kubernetes_objects", |path, value| list(path, value, 1, object))?;
        let objects = required("kubernetes_objects", objects)?;
        let one = objects.into_iter().next();
        let (object, measured) = required("kubernetes_objects[0]", one)?;
        let measured = measured.into_iter().collect();
        Ok(Upload { experiment, bucket: Bucket { start_ms, end_ms, measured }, object })
    }

    /// Whether these can be results of the experiment; if not, why.
    pub fn check(&self, experiment: &Experiment) -> Result<(), String> {
        let name = &experiment.name;
        if !experiment.is_remote() {
            return Err(format!(
                "experiment_name: {name} is read from a data source; only experiments with \
                 target_cluster remote have results that are uploaded"
            ));
        }
        let Bucket { start_ms, end_ms, measured } = &self.bucket;
        let expected_ms = i64::from(experiment.measurement_min) * 60_000;
        if (end_ms - start_ms - expected_ms).abs() > TOLERANCE_MS {
            return Err("Interval duration cannot be less than or greater than \
                        measurement_duration by more than 30 seconds"
                .to_owned());
        }
        let of = experiment.objects.first().ok_or("the experiment has no objects")?;
        self.check_object(of, experiment.experiment_type)?;
        let known = experiment.members();
        let subjects: Vec<&str> = match experiment.experiment_type {
            Type::Container => known.iter().map(|member| member.container.as_str()).collect(),
            Type::Namespace => known.iter().map(|member| member.namespace.as_str()).collect(),
        };
        let metrics = metrics(experiment.experiment_type);
        for (subject, measured) in measured {
            if !subjects.contains(&subject.as_str()) {
                return Err(format!(
                    "kubernetes_objects[0].containers: {subject} is not a container of the \
                     experiment; there are {}",
                    subjects.join(", ")
                ));
            }
            if measured.is_empty() {
                return Err(format!(
                    "Performance profile: [Metric data is not present for container : {subject} \
                     for experiment: {name}. ]"
                ));
            }
            let mandatory: Vec<&str> =
                metrics.iter().filter(|it| it.required).map(|it| it.name).collect();
            if mandatory.iter().any(|name| !measured.contains_key(*name)) {
                return Err(format!(
                    "Performance profile: [Missing one of the following mandatory parameters for \
                     experiment - {name} : [{}]]",
                    mandatory.join(", ")
                ));
            }
        }
        Ok(())
    }

    fn check_object(&self, of: &KubernetesObject, experiment_type: Type) -> Result<(), String> {
        let found = &self.object;
        if found.experiment_type != experiment_type {
            let expected = match experiment_type {
                Type::Container => "containers",
                Type::Namespace => "namespaces",
            };
            return Err(format!("kubernetes_objects[0]: must have {expected}"));
        }
        let fields = [
            ("type", found.workload_type.as_ref(), &of.workload_type),
            ("name", found.name.as_ref(), &of.name),
            ("namespace", Some(&found.namespace), &of.namespace),
        ];
        match fields.into_iter().find(|(_, found, of)| found.is_some_and(|found| found != *of)) {
            None => Ok(()),
            Some((field, _, of)) => {
                Err(format!("kubernetes_objects[0].{field}: must be that of the experiment, {of}"))
            }
        }
    }
}

fn metrics(of: Type) -> &'static [Uploaded] {
    match of {
        Type::Container => &CONTAINER,
        Type::Namespace => &NAMESPACE,
    }
}

fn time_ms(path: &str, value: Value) -> Result<i64, Invalid> {
    let problem = || Invalid::new(path, "must be a time such as 2022-01-23T18:25:43.511Z");
    let text = name(path, value)?;
    let at = time::parse(&text).map_err(|_| problem())?.as_millisecond();
    // Times before 1970 are no intervals of measurements.
    (at >= 0).then_some(at).ok_or_else(problem)
}

type Subjects = Vec<(String, Measured)>;

fn object(path: &str, value: Value) -> Result<(Object, Subjects), Invalid> {
    let mut fields = Fields::new(path, value)?;
    let containers =
        fields.read("containers", |path, value| list(path, value, CONTAINERS_MAX, container))?;
    let containers = containers.filter(|containers| !containers.is_empty());
    let whole = fields.read("namespaces", whole_namespace)?;
    let (workload_type, name) = (fields.read("type", name)?, fields.read("name", name)?);
    let namespace = fields.read("namespace", self::name)?;
    let (experiment_type, subjects, namespace) = match (containers, whole) {
        (Some(containers), None) => {
            let namespace = required(&format!("{path}.namespace"), namespace)?;
            (Type::Container, containers, namespace)
        }
        (None, Some(whole)) => {
            let namespace = whole.0.clone();
            (Type::Namespace, vec![whole], namespace)
        }
        (None, None) => return Err(Invalid::new(path, "must have containers or namespaces")),
        (Some(_), Some(_)) => {
            return Err(Invalid::new(path, "must have either containers or namespaces, not both"));
        }
    };
    for (i, (subject, _)) in subjects.iter().enumerate() {
        if subjects[..i].iter().any(|(other, _)| other == subject) {
            let path = format!("{path}.containers[{i}].container_name");
            return Err(Invalid::new(path, "is there twice"));
        }
    }
    Ok((Object { experiment_type, workload_type, name, namespace }, subjects))
}

fn container(path: &str, value: Value) -> Result<(String, Measured), Invalid> {
    let mut fields = Fields::new(path, value)?;
    let name = required(&format!("{path}.container_name"), fields.read("container_name", name)?)?;
    let measured = fields.read("metrics", |path, value| measured(path, value, &CONTAINER))?;
    Ok((name, measured.unwrap_or_default()))
}

fn whole_namespace(path: &str, value: Value) -> Result<(String, Measured), Invalid> {
    let mut fields = Fields::new(path, value)?;
    let name = required(&format!("{path}.namespace"), fields.read("namespace", name)?)?;
    let measured = fields.read("metrics", |path, value| measured(path, value, &NAMESPACE))?;
    Ok((name, measured.unwrap_or_default()))
}

fn measured(path: &str, value: Value, known: &[Uploaded]) -> Result<Measured, Invalid> {
    let all = list(path, value, METRICS_MAX, |path, value| {
        let mut fields = Fields::new(path, value)?;
        let at = format!("{path}.name");
        let name = required(&at, fields.read("name", name)?)?;
        if !known.iter().any(|metric| metric.name == name) {
            let known: Vec<&str> = known.iter().map(|metric| metric.name).collect();
            return Err(Invalid::new(at, format!("must be one of {}", known.join(", "))));
        }
        Ok((name, fields.read("results", measurement)?.unwrap_or_default()))
    })?;
    let mut measured = Measured::new();
    for (i, (name, measurement)) in all.into_iter().enumerate() {
        if measured.insert(name, measurement).is_some() {
            return Err(Invalid::new(format!("{path}[{i}].name"), "is there twice"));
        }
    }
    Ok(measured)
}

fn measurement(path: &str, value: Value) -> Result<Measurement, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let model = fields.read("metadata", |path, value| {
        Fields::new(path, value)?.read("accelerator_model_name", name)
    })?;
    let format = fields.read("format", name)?;
    let found = fields.read("aggregation_info", |path, value| {
        let mut fields = Fields::new(path, value)?;
        Ok(Measurement {
            sum: fields.read("sum", amount)?,
            avg: fields.read("avg", amount)?,
            min: fields.read("min", amount)?,
            max: fields.read("max", amount)?,
            format: fields.read("format", name)?,
            model: None,
        })
    })?;
    let found = found.unwrap_or_default();
    Ok(Measurement { format: found.format.or(format), model: model.flatten(), ..found })
}

fn amount(path: &str, value: Value) -> Result<f64, Invalid> {
    let found = number(path, &value).ok().filter(|amount| *amount >= 0.0);
    found.ok_or_else(|| Invalid::new(path, "must be a number, 0 or more"))
}
