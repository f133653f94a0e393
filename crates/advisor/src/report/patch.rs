//! Recommendations as patches of workloads, for server-side apply: files for people to review, and
//! nothing else. Each names one workload and only what changes of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::summary::{Row, Summary};
use super::units;
use crate::model::inventory::Member;

const MIB: f64 = 1024.0 * 1024.0;

/// What is written for some containers.
#[derive(Debug, Clone, Default)]
pub struct Patches {
    pub files: Vec<Patch>,
    /// Experiments without a patch, and why.
    pub skipped: Vec<(String, String)>,
}

/// What changes of one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// `shop-deployment-web.yaml`.
    pub file: String,
    pub object: Value,
    /// One line for each container: from what to what.
    pub changes: Vec<String>,
}

/// Which of the recommended amounts a patch sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sections {
    RequestsAndLimits,
    /// Limits stay as they are, unless they would be less than the request.
    Requests,
}

/// The patches of the containers of a summary, one for each workload.
pub fn patches(summary: &Summary<'_>, sections: Sections) -> Patches {
    let mut found = Patches::default();
    let mut workloads: BTreeMap<(&str, &str, &str), Vec<&Row<'_>>> = BTreeMap::new();
    for row in &summary.rows {
        let member = &row.advice.member;
        match refusal(row) {
            Some(why) => found.skipped.push((row.advice.experiment.clone(), why)),
            None => {
                let workload = (&*member.namespace, &*member.workload_type, &*member.workload);
                workloads.entry(workload).or_default().push(row);
            }
        }
    }
    for skipped in &summary.skipped {
        found.skipped.push((skipped.advice.experiment.clone(), skipped.reason.to_owned()));
    }
    found.files = workloads.values().map(|rows| patch(rows, sections)).collect();
    found
}

/// Where the pod template of a kind of workload is.
struct Place {
    api_version: &'static str,
    kind: &'static str,
    path: &'static [&'static str],
}

const SPEC: &[&str] = &["template", "spec"];

fn place(workload_type: &str) -> Option<Place> {
    let (api_version, kind, path) = match workload_type.to_ascii_lowercase().as_str() {
        "deployment" => ("apps/v1", "Deployment", SPEC),
        "statefulset" => ("apps/v1", "StatefulSet", SPEC),
        "daemonset" => ("apps/v1", "DaemonSet", SPEC),
        "replicaset" => ("apps/v1", "ReplicaSet", SPEC),
        "replicationcontroller" => ("v1", "ReplicationController", SPEC),
        "deploymentconfig" => ("apps.openshift.io/v1", "DeploymentConfig", SPEC),
        "cronjob" => ("batch/v1", "CronJob", &["jobTemplate", "spec", "template", "spec"][..]),
        _ => return None,
    };
    Some(Place { api_version, kind, path })
}

fn refusal(row: &Row<'_>) -> Option<String> {
    let member = &row.advice.member;
    if member.is_namespace() {
        return Some("it is about a whole namespace: set its quota".to_owned());
    }
    if place(&member.workload_type).is_none() {
        let kind = &member.workload_type;
        return Some(format!("a {kind} cannot be changed: change what creates it"));
    }
    let nothing = row.cpu.recommended.is_none() && row.memory.recommended.is_none();
    nothing.then(|| "neither CPU nor memory is recommended".to_owned())
}

fn patch(rows: &[&Row<'_>], sections: Sections) -> Patch {
    let member = &rows[0].advice.member;
    let Place { api_version, kind, path } =
        place(&member.workload_type).expect("others are refused");
    let containers: Vec<Value> = rows.iter().map(|row| container(row, sections)).collect();
    let mut spec = json!({ "containers": containers });
    for field in path.iter().rev() {
        spec = json!({ *field: spec });
    }
    let object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": { "name": member.workload, "namespace": member.namespace },
        "spec": spec,
    });
    Patch { file: file(member), object, changes: rows.iter().map(|row| change(row)).collect() }
}

fn container(row: &Row<'_>, sections: Sections) -> Value {
    let (cpu, memory) = (row.cpu.recommended, row.memory.recommended);
    let mut requests = Map::new();
    let mut limits = Map::new();
    let raise = |limit: Option<f64>, amount: f64| {
        sections == Sections::RequestsAndLimits || limit.is_some_and(|limit| limit < amount)
    };
    if let Some(cores) = cpu {
        requests.insert("cpu".into(), cpu_quantity(cores).into());
        if raise(row.cpu.limit, cores) {
            limits.insert("cpu".into(), cpu_quantity(cores).into());
        }
    }
    if let Some(bytes) = memory {
        requests.insert("memory".into(), memory_quantity(bytes).into());
        if raise(row.memory.limit, bytes) {
            limits.insert("memory".into(), memory_quantity(bytes).into());
        }
    }
    let mut resources = Map::from_iter([("requests".to_owned(), Value::Object(requests))]);
    if !limits.is_empty() {
        resources.insert("limits".into(), Value::Object(limits));
    }
    json!({ "name": row.advice.member.container, "resources": resources })
}

/// Whole thousandths, never less than what is recommended.
fn cpu_quantity(cores: f64) -> String {
    let milli = (cores * 1000.0).ceil().max(1.0);
    if milli % 1000.0 == 0.0 { format!("{}", milli / 1000.0) } else { format!("{milli}m") }
}

/// Whole MiB, never less than what is recommended.
fn memory_quantity(bytes: f64) -> String {
    format!("{}Mi", (bytes / MIB).ceil().max(1.0))
}

/// `nginx: CPU 1 -> 250m, memory 1 GiB -> 300 MiB`.
fn change(row: &Row<'_>) -> String {
    let part = |name, before: Option<f64>, after: Option<f64>, unit: fn(f64) -> String| {
        let before = before.map_or("unset".to_owned(), unit);
        Some(format!("{name} {before} -> {}", unit(after?)))
    };
    let cpu = part("CPU", row.cpu.request, row.cpu.recommended, units::cpu);
    let memory = part("memory", row.memory.request, row.memory.recommended, units::memory);
    let parts: Vec<String> = cpu.into_iter().chain(memory).collect();
    format!("{}: {}", row.advice.member.container, parts.join(", "))
}

/// Names of Kubernetes' objects are names of files; others come from series that anybody may write.
fn file(member: &Member) -> String {
    let safe = |text: &str| -> String {
        let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        text.chars().map(|c| if keep(c) { c } else { '_' }).collect()
    };
    let kind = member.workload_type.to_ascii_lowercase();
    format!("{}-{}-{}.yaml", safe(&member.namespace), safe(&kind), safe(&member.workload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_rounded_up() {
        assert_eq!(
            [0.0001, 0.25, 0.2501, 1.0, 2.9991].map(cpu_quantity),
            ["1m", "250m", "251m", "1", "3"]
        );
        assert_eq!(
            [1.0, MIB, MIB + 1.0, 300.0 * MIB].map(memory_quantity),
            ["1Mi", "1Mi", "2Mi", "300Mi"]
        );
    }
}
