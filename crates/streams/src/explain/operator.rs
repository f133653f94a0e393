//! Whether an operator manages the stream: its class, the operator, another operator.

use super::{OperatorState, Reason, StreamFacts, distance};
use crate::model::class::Class;

pub(super) fn deleting(facts: &StreamFacts) -> Option<Reason> {
    facts.stream.deleting.then(|| {
        Reason::new(
            "deleting",
            "It is being deleted, and its Job with it.",
            "It is gone once the finalizers in its metadata are removed.",
        )
    })
}

pub(super) fn unclassed(facts: &StreamFacts) -> Option<Reason> {
    let Class { kind, plural, version, group, .. } = &facts.class;
    (!facts.has_class).then(|| {
        Reason::new(
            "class-missing",
            format!("No StreamClass names the kind {kind}, so no operator manages it."),
            format!(
                "Apply a StreamClass with apiGroupRef {group}, apiVersion {version}, kindRef {kind} \
                 and pluralName {plural}."
            ),
        )
    })
}

pub(super) fn class_state(facts: &StreamFacts) -> Option<Reason> {
    let class = &facts.class;
    if !facts.has_class || class.phase.eq_ignore_ascii_case("ready") {
        return None;
    }
    let phase = if class.phase.is_empty() { "not reconciled yet" } else { &class.phase };
    let why = if class.message.is_empty() { String::new() } else { format!(": {}", class.message) };
    Some(Reason::new(
        "class-not-ready",
        format!("Its class {} is {phase}{why}. Its streams may not be watched.", class.name),
        if class.phase.is_empty() {
            "An operator makes it Ready; check that one runs."
        } else {
            "The operator retries automatically; see the class with kubectl describe streamclass."
        },
    ))
}

/// A Lease that was not renewed for this many times its duration has no holder.
const STALE_TIMES: i64 = 3;

pub(super) fn operator(facts: &StreamFacts) -> Option<Reason> {
    let start = "Start one with `mainstay operator`, or check its Deployment.";
    match &facts.operator {
        OperatorState::Unknown => None,
        // An operator of another kind may run without a Lease.
        OperatorState::None if facts.stream.other_writer.is_some() => None,
        OperatorState::None => Some(Reason::new(
            "no-operator",
            "No operator is running: there is no Lease of one in this cluster.",
            format!("{start} (One that was started with --no-lease has none.)"),
        )),
        OperatorState::Lease(object_name, lease) => {
            let age_s = facts.now.as_second() - lease.renewed.as_second();
            let stale = age_s > i64::from(lease.duration_s.max(1)) * STALE_TIMES;
            let (holder, ago) = (&lease.holder, distance(facts.now, lease.renewed));
            if lease.holder.is_empty() {
                let message = format!(
                    "No operator is running: the last one released the Lease {object_name} {ago}."
                );
                return Some(Reason::new("no-operator", message, start));
            }
            stale.then(|| {
                let message = format!(
                    "No operator is running: {holder} renewed the Lease {object_name} last {ago}."
                );
                Reason::new("no-operator", message, start)
            })
        }
    }
}

/// Another writer counts as active for this long after its last write.
const RECENT_S: i64 = 15 * 60;

pub(super) fn other_operator(facts: &StreamFacts) -> Option<Reason> {
    let (name, at) = facts.stream.other_writer.as_deref()?;
    let recent = facts.now.as_second() - at.as_second() < RECENT_S;
    let ours =
        matches!(&facts.operator, OperatorState::Lease(_, lease) if !lease.holder.is_empty());
    match (ours, recent) {
        (true, true) => Some(Reason::new(
            "another-operator",
            format!(
                "Another operator also writes its status: {name}, {}.",
                distance(facts.now, *at)
            ),
            format!("Stop one of the two; `kubectl get deploy -A` may show what {name} is."),
        )),
        (false, _) if facts.operator == OperatorState::None => Some(Reason::new(
            "another-operator",
            format!(
                "Another operator manages it, which wrote its status as {name} {}.",
                distance(facts.now, *at)
            ),
            "The rest of this explanation is how Mainstay would treat it.",
        )),
        _ => None,
    }
}
