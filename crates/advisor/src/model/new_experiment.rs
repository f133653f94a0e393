//! The request of `createExperiment`. Fields that nothing here knows are ignored, as the existing
//! service ignores them: its clients send back what it lists.

use serde::Deserialize;
use serde_json::Value;

use super::checked::{self, list, name, number, required};
use super::experiment::{
    ContainerRef, Experiment, KubernetesObject, METADATA_PROFILE, PERFORMANCE_PROFILE, Type,
};
use super::fields::{Fields, Invalid, text};
use super::inventory::CLUSTER;

const NAME: &str = "experiment_name";
const DATASOURCE: &str = "prometheus-1";
/// What clients of uploaded results name.
const REMOTE_PROFILE: &str = "resource-optimization-openshift";
/// Of one workload. Kubernetes has no limit; no pod has this many.
const CONTAINERS_MAX: usize = 40;
const THRESHOLD_PERCENT: f64 = 0.1;
/// What data sources are read in.
const MEASUREMENT_MIN: u32 = 15;
const MEASUREMENT_MIN_MAX: u32 = 24 * 60;
const MONITOR: &str = "monitor";
const LOCAL: &str = "local";
const REMOTE: &str = "remote";

/// An experiment that is requested.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct NewExperiment(pub Experiment);

impl TryFrom<Value> for NewExperiment {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new("", value)?;
        fields.read("version", text)?;
        let experiment_type = fields.read("experiment_type", read_type)?.unwrap_or(Type::Container);
        let mode = fields.read("mode", |path, value| one_of(path, value, &[MONITOR]))?;
        let target =
            fields.read("target_cluster", |path, value| one_of(path, value, &[LOCAL, REMOTE]))?;
        let target = target.unwrap_or_else(|| LOCAL.to_owned());
        let is_remote = target == REMOTE;
        let datasource = fields.read("datasource", name)?.unwrap_or_else(|| DATASOURCE.to_owned());
        let performance_profile = fields.read("performance_profile", name)?;
        let metadata_profile = fields.read("metadata_profile", name)?;
        let profile = if is_remote { REMOTE_PROFILE } else { PERFORMANCE_PROFILE };
        let local_metadata = || (!is_remote).then(|| METADATA_PROFILE.to_owned());
        let objects = fields
            .read("kubernetes_objects", |path, value| objects(path, value, experiment_type))?;
        let minutes = fields.read("trial_settings", |path, value| minutes(path, value, is_remote));
        Ok(NewExperiment(Experiment {
            name: required(NAME, fields.read(NAME, checked::experiment_name)?)?,
            cluster: fields.read("cluster_name", name)?.unwrap_or_else(|| CLUSTER.to_owned()),
            experiment_type,
            datasource: (!is_remote).then_some(datasource),
            performance_profile: performance_profile.unwrap_or_else(|| profile.to_owned()),
            metadata_profile: metadata_profile.or_else(local_metadata),
            mode: mode.unwrap_or_else(|| MONITOR.to_owned()),
            target_cluster: target,
            measurement_min: minutes?.unwrap_or(MEASUREMENT_MIN),
            threshold: fields
                .read("recommendation_settings", threshold)?
                .unwrap_or(THRESHOLD_PERCENT),
            objects: required("kubernetes_objects", objects)?,
            requests: Vec::new(),
        }))
    }
}

/// The name of the experiment that a request is about.
pub fn experiment_name(request: &Value) -> Result<String, Invalid> {
    let found = request.get(NAME).filter(|name| !name.is_null());
    let found = found.map(|name| checked::experiment_name(NAME, name.clone()));
    required(NAME, found.transpose()?)
}

fn read_type(path: &str, value: Value) -> Result<Type, Invalid> {
    let found = one_of(path, value, &["container", "namespace"])?;
    Ok(if found == "namespace" { Type::Namespace } else { Type::Container })
}

fn one_of(path: &str, value: Value, known: &[&str]) -> Result<String, Invalid> {
    let found = name(path, value)?.trim().to_ascii_lowercase();
    if known.contains(&found.as_str()) {
        return Ok(found);
    }
    Err(Invalid::new(path, format!("must be {}", known.join(" or "))))
}

/// Exactly one, as in the existing service.
fn objects(path: &str, value: Value, of: Type) -> Result<Vec<KubernetesObject>, Invalid> {
    let one = |path: &str, value| match of {
        Type::Container => workload(path, value),
        Type::Namespace => whole_namespace(path, value),
    };
    let found = list(path, value, 1, one)?;
    if found.is_empty() { Err(Invalid::new(path, "must have one item")) } else { Ok(found) }
}

fn workload(path: &str, value: Value) -> Result<KubernetesObject, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let at = |field: &str| format!("{path}.{field}");
    if fields.take("namespaces").is_some_and(|found| found != Value::Object(Default::default())) {
        let problem = "must not be set; for a namespace, set experiment_type to namespace";
        return Err(Invalid::new(at("namespaces"), problem));
    }
    let containers =
        fields.read("containers", |path, value| list(path, value, CONTAINERS_MAX, container))?;
    let containers: Vec<ContainerRef> = required(&at("containers"), containers)?;
    if containers.is_empty() {
        return Err(Invalid::new(at("containers"), "must have at least one item"));
    }
    for (i, container) in containers.iter().enumerate() {
        let before = &containers[..i];
        if before.iter().any(|other| other.container_name == container.container_name) {
            let path = format!("{path}.containers[{i}].container_name");
            return Err(Invalid::new(path, "is there twice"));
        }
    }
    Ok(KubernetesObject {
        workload_type: required(&at("type"), fields.read("type", name)?)?,
        name: required(&at("name"), fields.read("name", name)?)?,
        namespace: required(&at("namespace"), fields.read("namespace", name)?)?,
        containers,
    })
}

fn container(path: &str, value: Value) -> Result<ContainerRef, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let found = fields.read("container_name", name)?;
    Ok(ContainerRef {
        container_name: required(&format!("{path}.container_name"), found)?,
        // Many registries have longer names than Kubernetes.
        container_image_name: fields
            .read("container_image_name", |path, value| match value {
                Value::String(text) if text.is_empty() => Ok(text),
                value => checked::experiment_name(path, value),
            })?
            .unwrap_or_default(),
    })
}

fn whole_namespace(path: &str, value: Value) -> Result<KubernetesObject, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let no_containers = [Value::Array(Vec::new()), Value::Object(Default::default())];
    if fields.take("containers").is_some_and(|found| !no_containers.contains(&found)) {
        let problem = "must not be set for a namespace";
        return Err(Invalid::new(format!("{path}.containers"), problem));
    }
    let found = fields.read("namespaces", |path, value| {
        let mut fields = Fields::new(path, value)?;
        // The documents have the second name, too.
        let found = fields.read("namespace", name)?;
        let found = found.map_or_else(|| fields.read("namespace_name", name), |it| Ok(Some(it)))?;
        required(&format!("{path}.namespace"), found)
    })?;
    Ok(KubernetesObject {
        workload_type: String::new(),
        name: String::new(),
        namespace: required(&format!("{path}.namespaces"), found)?,
        containers: Vec::new(),
    })
}

/// The digits of a duration such as `15min`.
fn minutes(path: &str, value: Value, is_remote: bool) -> Result<u32, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let Some(found) = fields.read("measurement_duration", name)? else {
        return Ok(MEASUREMENT_MIN);
    };
    let path = format!("{path}.measurement_duration");
    let digits: String = found.chars().filter(char::is_ascii_digit).collect();
    let minutes = digits.parse().unwrap_or(0);
    if !is_remote && minutes != MEASUREMENT_MIN {
        return Err(Invalid::new(path, "must be 15min: data sources are read in such steps"));
    }
    if !(1..=MEASUREMENT_MIN_MAX).contains(&minutes) {
        let problem = format!("must be from 1 to {MEASUREMENT_MIN_MAX} minutes, such as 15min");
        return Err(Invalid::new(path, problem));
    }
    Ok(minutes)
}

fn threshold(path: &str, value: Value) -> Result<f64, Invalid> {
    let mut fields = Fields::new(path, value)?;
    for unsupported in ["model_settings", "term_settings"] {
        if fields.take(unsupported).is_some() {
            let problem = "is not supported: recommendations are for cost and for performance, in \
                           all three terms";
            return Err(Invalid::new(format!("{path}.{unsupported}"), problem));
        }
    }
    let found = fields.read("threshold", |path, value| {
        let percent = number(path, &value)?;
        let problem = || Invalid::new(path, "must be a percentage from 0 to 100");
        (0.0..=100.0).contains(&percent).then_some(percent).ok_or_else(problem)
    })?;
    Ok(found.unwrap_or(THRESHOLD_PERCENT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container_experiment() -> Value {
        json!({
            "version": "v2.0", "experiment_name": "e", "mode": "monitor", "target_cluster": "local",
            "kubernetes_objects": [{
                "type": "deployment", "name": "web", "namespace": "shop",
                "containers": [{ "container_image_name": "nginx:1", "container_name": "nginx" }],
            }],
            "trial_settings": { "measurement_duration": "15min" },
            "recommendation_settings": { "threshold": "0.1" },
        })
    }

    fn read(value: Value) -> Result<Experiment, Invalid> {
        NewExperiment::try_from(value).map(|new| new.0)
    }

    #[test]
    fn what_is_left_out_has_the_values_of_bulk_jobs() {
        let found = read(container_experiment()).unwrap();
        assert_eq!(found.datasource.as_deref(), Some("prometheus-1"));
        assert_eq!((found.cluster.as_str(), found.measurement_min), ("default", 15));
        assert_eq!(found.performance_profile, PERFORMANCE_PROFILE);
        assert_eq!(found.metadata_profile.as_deref(), Some(METADATA_PROFILE));
        assert_eq!(found.members()[0].container, "nginx");
    }

    #[test]
    fn results_of_a_remote_experiment_are_uploaded_in_steps_of_its_own() {
        let mut request = container_experiment();
        request["target_cluster"] = "remote".into();
        request["trial_settings"]["measurement_duration"] = "5mins".into();
        let found = read(request).unwrap();
        assert!(found.is_remote());
        assert_eq!((found.measurement_min, found.metadata_profile), (5, None));
    }

    #[test]
    fn a_namespace_is_read_under_both_names() {
        for field in ["namespace", "namespace_name"] {
            let objects = json!([{ "namespaces": { field: "shop" } }]);
            let request = json!({
                "experiment_name": "n", "experiment_type": "namespace", "kubernetes_objects": objects,
            });
            let members = read(request).unwrap().members();
            assert!(members[0].is_namespace() && members[0].namespace == "shop");
        }
    }

    #[test]
    fn each_mistake_is_named_with_its_field() {
        let long = "x".repeat(NAME_LONG);
        let objects = "kubernetes_objects";
        let table = [
            ("experiment_name", json!(null), "experiment_name"),
            ("experiment_name", json!(" "), "experiment_name"),
            ("experiment_name", json!(long), "experiment_name"),
            ("experiment_name", json!("a\u{1}b"), "experiment_name"),
            ("experiment_name", json!(["e"]), "experiment_name"),
            ("mode", json!("auto"), "mode"),
            ("target_cluster", json!("moon"), "target_cluster"),
            ("experiment_type", json!("pod"), "experiment_type"),
            ("datasource", json!({}), "datasource"),
            ("trial_settings", json!([]), "trial_settings"),
            (
                "trial_settings",
                json!({ "measurement_duration": "1h" }),
                "trial_settings.measurement_duration",
            ),
            (
                "recommendation_settings",
                json!({ "threshold": "NaN" }),
                "recommendation_settings.threshold",
            ),
            (
                "recommendation_settings",
                json!({ "threshold": -1 }),
                "recommendation_settings.threshold",
            ),
            (
                "recommendation_settings",
                json!({ "model_settings": {} }),
                "recommendation_settings.model_settings",
            ),
            (objects, json!(null), objects),
            (objects, json!([]), objects),
            (objects, json!([1, 2]), objects),
            (objects, json!([{}]), "kubernetes_objects[0].containers"),
            (objects, json!([{ "containers": [] }]), "kubernetes_objects[0].containers"),
            (
                objects,
                json!([{ "containers": [{}] }]),
                "kubernetes_objects[0].containers[0].container_name",
            ),
            (
                objects,
                json!([{ "containers": [{ "container_name": "a" }] }]),
                "kubernetes_objects[0].type",
            ),
            (
                objects,
                json!([{ "namespaces": { "namespace": "n" } }]),
                "kubernetes_objects[0].namespaces",
            ),
            (
                objects,
                json!([{ "containers": [{ "container_name": "a" }, { "container_name": "a" }] }]),
                "kubernetes_objects[0].containers[1].container_name",
            ),
        ];
        for (field, value, named) in table {
            let mut request = container_experiment();
            request[field] = value;
            let error = read(request).unwrap_err();
            assert_eq!(error.field, named, "{error}");
            assert!(error.to_string().len() < 300, "{error}");
        }
    }

    const NAME_LONG: usize = 1_000_000;
}
