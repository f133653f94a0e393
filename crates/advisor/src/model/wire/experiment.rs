//! Experiments as `listExperiments` shows them, and the elements of `listRecommendations` of those
//! that have several containers or results.

use kernel::Timestamp;
use kernel::typed::Typed;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::model::bucket::{Bucket, Measurement};
use crate::model::experiment::{Experiment, KubernetesObject, Type};
use crate::model::notice::Notice;
use crate::model::recommendation::Recommendation;
use crate::model::wire::job::wire_time;
use crate::model::wire::recommendation::{Element, Subject};

const API_VERSION: &str = "v2.0";
const REGISTERED: &str = "Registered successfully with Kruize! View registered experiments at \
                          /listExperiments";

/// The element of an experiment, with what is recommended for each of its members, in their order.
/// Without recommendations it says that there is not enough data.
pub fn element(
    experiment: &Experiment,
    recommendations: &[Recommendation],
) -> Result<Box<RawValue>, serde_json::Error> {
    let members = experiment.members();
    let element = |i: usize| Element {
        cluster: &experiment.cluster,
        experiment: &experiment.name,
        subject: Subject::of(&members[i]),
        recommendation: recommendations.get(i),
    };
    if members.len() == 1 {
        return to_raw_value(&element(0));
    }
    let mut whole = Value::Null;
    for i in 0..members.len() {
        let mut one = serde_json::to_value(element(i))?;
        if whole.is_null() {
            whole = one;
        } else if let (Some(all), Value::Array(more)) =
            (containers_mut(&mut whole), one["kubernetes_objects"][0]["containers"].take())
        {
            all.extend(more);
        }
    }
    to_raw_value(&whole)
}

fn containers_mut(element: &mut Value) -> Option<&mut Vec<Value>> {
    element["kubernetes_objects"][0]["containers"].as_array_mut()
}

/// The recommendations of an element: of each container by its name, or of the namespace.
fn recommendations(element: &mut Value) -> Vec<(String, &mut Value)> {
    let object = &mut element["kubernetes_objects"][0];
    if object["namespaces"].is_object() {
        let namespace = &mut object["namespaces"];
        let name = namespace["namespace"].as_str().unwrap_or_default().to_owned();
        return vec![(name, &mut namespace["recommendations"])];
    }
    let containers = object["containers"].as_array_mut().into_iter().flatten();
    let named = containers.map(|container| {
        let name = container["container_name"].as_str().unwrap_or_default().to_owned();
        (name, &mut container["recommendations"])
    });
    named.collect()
}

/// Adds the data of earlier elements to that of the newest. Each time is shown once, as it was
/// recommended last.
pub fn add_history(newest: &mut Value, mut earlier: Value) {
    let mut earlier = recommendations(&mut earlier);
    for (name, newest) in recommendations(newest) {
        let Some((_, before)) = earlier.iter_mut().find(|(other, _)| *other == name) else {
            continue;
        };
        let before = before["data"].take();
        if let (Value::Object(data), Value::Object(before)) = (&mut newest["data"], before) {
            for (time, snapshot) in before {
                data.entry(time).or_insert(snapshot);
            }
            if !data.is_empty() {
                newest["notifications"] = available();
            }
        }
    }
}

/// The notification of recommendations that have data.
fn available() -> Value {
    let notice = Notice::RecommendationsAvailable;
    let (level, message, code) = (notice.level().as_str(), notice.message(), notice.code());
    json!({ code.to_string(): { "type": level, "message": message, "code": code } })
}

/// Leaves only what is recommended as of this time. Whether there is anything.
pub fn keep_time(element: &mut Value, time: &str) -> bool {
    let mut found = false;
    for (_, recommendations) in recommendations(element) {
        if let Value::Object(data) = &mut recommendations["data"] {
            data.retain(|at, _| at == time);
            found |= !data.is_empty();
        }
    }
    found
}

/// An experiment as `listExperiments` shows it. `element` is what is recommended for it.
pub fn listed(experiment: &Typed<Experiment>, element: Option<Value>) -> Value {
    let spec = &experiment.spec;
    let mut shown = json!({
        "version": API_VERSION,
        "experiment_id": experiment.id,
        "experiment_name": spec.name,
        "cluster_name": spec.cluster,
        "datasource": spec.datasource,
        "experiment_type": spec.experiment_type,
        "mode": spec.mode,
        "target_cluster": spec.target_cluster,
        "status": "IN_PROGRESS",
        "performance_profile": spec.performance_profile,
        "metadata_profile": spec.metadata_profile,
        "trial_settings": { "measurement_duration": format!("{}min", spec.measurement_min) },
        "recommendation_settings": { "threshold": spec.threshold },
        "experiment_usecase_type": {
            "remote_monitoring": spec.is_remote(),
            "local_monitoring": !spec.is_remote(),
            "local_experiment": false,
        },
        "validation_data": { "success": true, "message": REGISTERED, "errorCode": 201 },
    });
    let with_recommendations = element.is_some();
    let mut element = element.unwrap_or_default();
    let mut recommended: Map<String, Value> = if element.is_null() {
        Map::new()
    } else {
        recommendations(&mut element).into_iter().map(|(name, it)| (name, it.take())).collect()
    };
    let objects = spec.objects.iter().map(|object| {
        let mut shown = json!(object);
        let (containers, namespaces) = match spec.experiment_type {
            Type::Container => (containers(object, &mut recommended), json!({})),
            Type::Namespace => (json!({}), namespace(object, &mut recommended)),
        };
        shown["containers"] = containers;
        // As the existing service has it.
        if !with_recommendations || spec.experiment_type == Type::Namespace {
            shown["namespaces"] = namespaces;
        }
        shown
    });
    let objects: Vec<Value> = objects.collect();
    if let Value::Object(fields) = &mut shown {
        fields.retain(|_, value| !value.is_null());
        fields.insert("kubernetes_objects".into(), objects.into());
    }
    shown
}

fn containers(object: &KubernetesObject, recommended: &mut Map<String, Value>) -> Value {
    let containers = object.containers.iter().map(|container| {
        let mut shown = json!(container);
        if let Some(recommendations) = recommended.remove(&container.container_name) {
            shown["recommendations"] = recommendations;
        }
        (container.container_name.clone(), shown)
    });
    Value::Object(containers.collect())
}

fn namespace(object: &KubernetesObject, recommended: &mut Map<String, Value>) -> Value {
    let mut shown = json!({ "namespace": object.namespace });
    if let Some(recommendations) = recommended.remove(&object.namespace) {
        shown["recommendations"] = recommendations;
    }
    json!({ object.namespace.as_str(): shown })
}

/// Adds uploaded results to an experiment that is listed.
pub fn add_results(listed: &mut Value, buckets: &[Bucket]) {
    for bucket in buckets {
        for (subject, measured) in &bucket.measured {
            let metrics = measured.iter().map(|(name, it)| (name.clone(), measurement(it)));
            let metrics: Map<String, Value> = metrics.collect();
            let end = wire_time(Timestamp(bucket.end_ms));
            let shown = json!({
                "metrics": metrics,
                "interval_start_time": wire_time(Timestamp(bucket.start_ms)),
                "interval_end_time": end,
                "duration_in_minutes": (bucket.end_ms - bucket.start_ms) as f64 / 60_000.0,
            });
            let object = &mut listed["kubernetes_objects"][0];
            for place in ["containers", "namespaces"] {
                if let Some(of) = object[place].get_mut(subject) {
                    of["results"][end.as_str()] = shown.clone();
                }
            }
        }
    }
}

fn measurement(found: &Measurement) -> Value {
    let info = json!({
        "sum": found.sum, "avg": found.avg, "min": found.min, "max": found.max,
        "format": found.format,
    });
    let mut shown = json!({ "aggregation_info": info });
    if let Some(info) = shown["aggregation_info"].as_object_mut() {
        info.retain(|_, value| !value.is_null());
    }
    if let Some(model) = &found.model {
        shown["metadata"] = json!({ "accelerator_model_name": model });
    }
    shown
}
