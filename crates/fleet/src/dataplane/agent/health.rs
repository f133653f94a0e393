//! The health of an instance, from the conditions of its objects. Pure.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Ready,
    Suspended,
    /// What is still missing.
    Installing(String),
    Broken(String),
}

/// Reasons why a pod waits that only a change resolves.
const UNRECOVERABLE: &[&str] = &[
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// `found` are all of its objects.
pub fn assess(found: &[Value], pods: &[Value], suspended: bool) -> Health {
    let mut missing = Vec::new();
    for object in found {
        match object_health(object) {
            Health::Broken(why) => return Health::Broken(why),
            Health::Installing(what) => missing.push(what),
            Health::Ready | Health::Suspended => {}
        }
    }
    if suspended {
        return if pods.is_empty() {
            Health::Suspended
        } else {
            Health::Installing(format!("{} pods are ending", pods.len()))
        };
    }
    if missing.is_empty() {
        return Health::Ready;
    }
    match pods.iter().find_map(unrecoverable) {
        Some(why) => Health::Broken(why),
        None => Health::Installing(missing.join("; ")),
    }
}

fn object_health(object: &Value) -> Health {
    let (spec, status) = (&object["spec"], &object["status"]);
    let named = || format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
    let number = |value: &Value, or: i64| value.as_i64().unwrap_or(or);
    let generation = number(&object["metadata"]["generation"], 0);
    let observed = number(&status["observedGeneration"], 0) >= generation;
    let enough = |has: i64, wants: i64| {
        if observed && has >= wants {
            Health::Ready
        } else {
            Health::Installing(format!("{}: {has} of {wants} are ready", named()))
        }
    };
    match text(&object["kind"]) {
        "Deployment" => {
            if let Some(why) = condition(status, "ReplicaFailure", "True")
                .or_else(|| condition(status, "Progressing", "False"))
            {
                return Health::Broken(format!("{}: {why}", named()));
            }
            let wants = number(&spec["replicas"], 1);
            let fresh = number(&status["updatedReplicas"], 0);
            enough(number(&status["availableReplicas"], 0).min(fresh), wants)
        }
        "StatefulSet" => {
            let fresh = number(&status["updatedReplicas"], 0);
            enough(number(&status["readyReplicas"], 0).min(fresh), number(&spec["replicas"], 1))
        }
        "DaemonSet" => {
            enough(number(&status["numberReady"], 0), number(&status["desiredNumberScheduled"], 0))
        }
        "Job" => match condition(status, "Failed", "True") {
            Some(why) => Health::Broken(format!("{}: {why}", named())),
            None if condition(status, "Complete", "True").is_some() => Health::Ready,
            None => Health::Installing(format!("{} is running", named())),
        },
        "PersistentVolumeClaim" if status["phase"] != "Bound" => {
            Health::Installing(format!("{} is not bound", named()))
        }
        _ => custom(object, &named()),
    }
}

/// Custom resources have a condition `Ready`; built-in kinds without conditions are ready when they
/// exist.
fn custom(object: &Value, named: &str) -> Health {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(ready) = conditions.iter().find(|condition| condition["type"] == "Ready") else {
        let group = text(&object["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
        let ours = !group.contains('.') || group.ends_with(".k8s.io");
        return if ours || status.is_object() {
            Health::Ready
        } else {
            Health::Installing(format!("{named} has no status yet"))
        };
    };
    let said = format!("{named}: {} {}", text(&ready["reason"]), text(&ready["message"]));
    let said = said.trim_end().to_owned();
    match text(&ready["status"]) {
        "True" => Health::Ready,
        "False" if ["Error", "Failed"].contains(&text(&ready["reason"])) => Health::Broken(said),
        _ => match condition(status, "Failed", "True") {
            Some(why) => Health::Broken(format!("{named}: {why}")),
            None => Health::Installing(said),
        },
    }
}

/// The reason and message of a condition that has this status.
fn condition(status: &Value, of: &str, is: &str) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let found = conditions.iter().find(|one| one["type"] == of && one["status"] == is)?;
    let (reason, message) = (text(&found["reason"]), text(&found["message"]));
    Some(if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") })
}

fn unrecoverable(pod: &Value) -> Option<String> {
    let name = text(&pod["metadata"]["name"]);
    let status = &pod["status"];
    if status["phase"] == "Failed" {
        let why = format!("{} {}", text(&status["reason"]), text(&status["message"]));
        return Some(format!("pod {name} failed: {}", why.trim()));
    }
    let lists = ["initContainerStatuses", "containerStatuses"];
    let containers = lists.iter().filter_map(|list| status[*list].as_array()).flatten();
    for container in containers {
        let waiting = &container["state"]["waiting"];
        let reason = text(&waiting["reason"]);
        if UNRECOVERABLE.contains(&reason) {
            let last = &container["lastState"]["terminated"];
            let ended = match last["exitCode"].as_i64() {
                Some(code) => format!(" (it ended with {code}, {})", text(&last["reason"])),
                None => String::new(),
            };
            let said = format!("pod {name}: {reason} {}", text(&waiting["message"]));
            return Some(format!("{}{ended}", said.trim_end()));
        }
    }
    None
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use serde_json::json;

    use super::*;

    fn object(kind: &str, api: &str, spec: Value, status: Value) -> Value {
        json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "x", "generation": 2 },
                "spec": spec, "status": status })
    }

    #[test]
    fn each_kind_of_object_has_its_own_readiness() {
        let gone_by = |old: i64| {
            json!({ "observedGeneration": old, "availableReplicas": 2,
            "updatedReplicas": 2, "readyReplicas": 2 })
        };
        let ready = |object: &Value| assess(from_ref(object), &[], false) == Health::Ready;
        for kind in ["Deployment", "StatefulSet"] {
            let two = json!({ "replicas": 2 });
            assert!(ready(&object(kind, "apps/v1", two.clone(), gone_by(2))));
            assert!(
                !ready(&object(kind, "apps/v1", two.clone(), gone_by(1))),
                "of what was before"
            );
            assert!(!ready(&object(kind, "apps/v1", json!({ "replicas": 3 }), gone_by(2))));
        }
        assert!(ready(&object("Service", "v1", json!({}), json!({ "loadBalancer": {} }))));
        let crd = |status: Value| object("Kafka", "kafka.strimzi.io/v1beta2", json!({}), status);
        let said = |status: &str, reason: &str| json!({ "conditions": [{ "type": "Ready", "status": status, "reason": reason, "message": "m" }] });
        assert!(ready(&crd(said("True", ""))));
        assert!(!ready(&crd(Value::Null)) && !ready(&crd(said("False", "Creating"))));
        assert!(matches!(assess(&[crd(said("False", "Error"))], &[], false), Health::Broken(_)));
        let failed = json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }] });
        assert!(matches!(
            assess(&[object("Job", "batch/v1", json!({}), failed)], &[], false),
            Health::Broken(_)
        ));
    }

    #[test]
    fn a_pod_without_hope_breaks_what_is_not_ready_and_says_why() {
        let pod = json!({ "metadata": { "name": "p" }, "status": { "containerStatuses": [{
            "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "exitCode": 3, "reason": "Error" } } }] } });
        let starting = object("StatefulSet", "apps/v1", json!({ "replicas": 1 }), json!({}));
        let Health::Broken(why) = assess(from_ref(&starting), from_ref(&pod), false) else {
            panic!("it is broken")
        };
        assert_eq!(why, "pod p: CrashLoopBackOff (it ended with 3, Error)");
        assert!(matches!(assess(&[starting], &[], false), Health::Installing(_)));
        assert_eq!(assess(&[], from_ref(&pod), false), Health::Ready);
        assert!(matches!(assess(&[], &[pod], true), Health::Installing(_)));
        assert_eq!(assess(&[], &[], true), Health::Suspended);
    }
}
