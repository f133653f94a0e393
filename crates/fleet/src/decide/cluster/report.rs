//! The change that an agent's report makes to its cluster.

use std::time::Duration;

use kernel::change::{Release, Wake};
use kernel::{Change, Draft, Object, Result, Timestamp};
use serde_json::Value;

use super::lifecycle::{Event, next_phase};
use super::scaling;
use crate::decide::Transition;
use crate::model::cluster::{Capacity, Cluster, Operator, Phase, Spec, version_order};
use crate::model::error_code::ErrorCode;
use crate::model::kind::Kind;
use crate::model::recheck::Recheck;

/// More operators than any cluster has.
const OPERATORS_MAX: usize = 64;
const VERSIONS_MAX: usize = 256;

/// Refuses a report whose versions cannot be used; the error names the field.
pub fn check(kind: &Kind, body: &Value) -> Result<()> {
    let Some(versions) = &kind.file.versions else { return Ok(()) };
    let operators = body[&versions.operator].as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, operator) in operators.iter().enumerate() {
        let empty = |field: &str| {
            let place = format!(".status.{}[{i}].{field}", versions.operator);
            Err(ErrorCode::Field.error(format!("Field validation failed: {place} cannot be empty")))
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

/// The change that a report makes to a cluster's object; none if nothing is new and the status
/// recorded a report less than `stale_after` ago.
pub fn change(
    object: &Object,
    kind: &Kind,
    body: &Value,
    stale_after: Duration,
    now: Timestamp,
) -> Result<Option<Change>> {
    let before = Cluster::from_object(object)?;
    let mut after = reported(&before, kind, body, now);
    let refresh = before.status.agent_seen_at.is_none_or(|at| at.plus(stale_after) <= now);
    if after == before && !refresh {
        return Ok(None);
    }
    after.status.agent_seen_at = Some(now);
    let moved = before.phase != after.phase;
    let became_ready = moved && after.phase == Phase::Ready;
    let has_room = after.phase == Phase::Ready
        && (moved
            || before.status.capacity != after.status.capacity
            || before.status.operators != after.status.operators
            || before.status.agent_lost);
    let cluster = became_ready.then(|| Wake::new(before.key(), "", now));
    let wakes = has_room.then(|| Recheck::Waiting.wake(now)).into_iter().chain(cluster).collect();
    let holder = before.key().to_string();
    // The cluster that autoscaling created is ready: it may create the next one.
    let releases = scaling::counters(&before).filter(|_| became_ready);
    let releases = releases.map(|counter| Release { counter, holder: holder.clone() });
    let draft = Draft::<Spec>::of(object).phase(&after.phase).status(&after.status);
    let write = draft.report(if moved { after.phase.label() } else { "reported" }, now);
    Ok(Some(Change { releases: releases.collect(), wakes, ..Change::from(write) }))
}

/// The cluster after a report, without its time; values that the report lacks stay.
fn reported(cluster: &Cluster, kind: &Kind, body: &Value, now: Timestamp) -> Cluster {
    let mut next = cluster.clone();
    next.status.agent_lost = false;
    if let Some(operators) = operators(kind, body) {
        next.status.operators.insert(kind.name().to_owned(), operators);
    }
    for (ty, capacity) in body["capacity"].as_object().into_iter().flatten() {
        let known = kind.file.instance_type(ty).is_some() && cluster.spec.takes(kind.name(), ty);
        let number = |name: &str| capacity[name].as_i64().filter(|n| *n >= 0);
        if let (true, Some(max)) = (known, number("maxUnits")) {
            let remaining = number("remainingUnits").unwrap_or(0);
            next.status.capacity.insert(ty.clone(), Capacity { max, remaining });
        }
    }
    let conditions = body["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let ready_status = ready.and_then(|condition| match condition["status"].as_str()? {
        "True" | "true" | "TRUE" | "1" | "t" | "T" => Some(true),
        "False" | "false" | "FALSE" | "0" | "f" | "F" => Some(false),
        _ => None,
    });
    let event = match ready_status {
        Some(true) => next_phase(cluster.phase, Event::AgentReady),
        Some(false) => next_phase(cluster.phase, Event::AgentNotReady),
        None => Transition::None,
    };
    if cluster.status.agent_lost {
        next.status.reason.clear();
    }
    if let Transition::To(phase) = event {
        next.phase = phase;
        next.status.waiting_for.clear();
        next.status.since = now;
        next.status.reason = ready
            .and_then(|condition| condition["message"].as_str())
            .map(|text| text.chars().take(1_024).collect())
            .unwrap_or_default();
    }
    next
}

/// The operators of a kind, sorted by version; none if the report lacks them.
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
