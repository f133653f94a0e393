//! What an agent's report makes of its cluster.

use kernel::{Result, Timestamp};
use serde_json::Value;

use super::life::{Event, then};
use crate::decide::Then;
use crate::model::cluster::{Capacity, Cluster, Operator, version_order};
use crate::model::code::Code;
use crate::model::kind::Kind;

/// More operators than any cluster has.
const OPERATORS_MAX: usize = 64;
const VERSIONS_MAX: usize = 256;

/// Refuses a report whose versions cannot be used, by the field.
pub fn check(kind: &Kind, body: &Value) -> Result<()> {
    let Some(versions) = &kind.file.versions else { return Ok(()) };
    let operators = body[&versions.operator].as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, operator) in operators.iter().enumerate() {
        let empty = |field: &str| {
            let place = format!(".status.{}[{i}].{field}", versions.operator);
            Err(Code::Field.error(format!("Field validation failed: {place} cannot be empty")))
        };
        if operator["version"].as_str().is_none_or(str::is_empty) {
            return empty("version");
        }
        for list in versions.components.values() {
            if operator[list].as_array().is_none_or(Vec::is_empty) {
                return empty(list);
            }
        }
    }
    Ok(())
}

/// The cluster after a report; what the report does not speak of stays. The time is not in it.
pub fn reported(cluster: &Cluster, kind: &Kind, body: &Value, now: Timestamp) -> Cluster {
    let mut next = cluster.clone();
    next.seen.agent_lost = false;
    if let Some(operators) = operators(kind, body) {
        next.seen.operators.insert(kind.name().to_owned(), operators);
    }
    for (of, capacity) in body["capacity"].as_object().into_iter().flatten() {
        let known = kind.of_type(of).is_some() && cluster.takes(kind.name(), of);
        let number = |name: &str| capacity[name].as_i64().filter(|n| *n >= 0);
        if let (true, Some(max)) = (known, number("maxUnits")) {
            let remaining = number("remainingUnits").unwrap_or(0);
            next.seen.capacity.insert(of.clone(), Capacity { max, remaining });
        }
    }
    let conditions = body["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let says = ready.and_then(|condition| match condition["status"].as_str()? {
        "True" | "true" | "TRUE" | "1" | "t" | "T" => Some(true),
        "False" | "false" | "FALSE" | "0" | "f" | "F" => Some(false),
        _ => None,
    });
    let event = match says {
        Some(true) => then(cluster.status, Event::AgentReady),
        Some(false) => then(cluster.status, Event::AgentNotReady),
        None => Then::Stays,
    };
    if cluster.seen.agent_lost {
        next.seen.reason.clear();
    }
    if let Then::To(status) = event {
        next.status = status;
        next.seen.waiting_for.clear();
        next.seen.since = now;
        next.seen.reason = ready
            .and_then(|condition| condition["message"].as_str())
            .map(|text| text.chars().take(1_024).collect())
            .unwrap_or_default();
    }
    next
}

/// The operators of a kind, sorted by version; none if the report does not speak of them.
fn operators(kind: &Kind, body: &Value) -> Option<Vec<Operator>> {
    let versions = kind.file.versions.as_ref()?;
    let listed = body[&versions.operator].as_array().filter(|list| !list.is_empty())?;
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let texts = list.iter().take(VERSIONS_MAX).filter_map(Value::as_str);
        texts.map(|text| text.chars().take(128).collect()).collect()
    };
    let mut operators: Vec<Operator> = listed
        .iter()
        .take(OPERATORS_MAX)
        .map(|operator| Operator {
            version: operator["version"].as_str().unwrap_or_default().chars().take(128).collect(),
            ready: operator["ready"].as_bool().unwrap_or(false),
            components: versions
                .components
                .iter()
                .map(|(component, list)| (component.clone(), texts(&operator[list])))
                .collect(),
        })
        .collect();
    operators.sort_by_key(|operator| version_order(&operator.version));
    Some(operators)
}
