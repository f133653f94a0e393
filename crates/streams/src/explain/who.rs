//! Whether anyone looks after a stream at all: its class, the operator, another one.

use super::{Operator, Reason, Seen, distance};
use crate::model::class::Class;

pub(super) fn deleting(seen: &Seen) -> Option<Reason> {
    seen.stream.deleting.then(|| {
        Reason::new(
            "deleting",
            "It is being deleted; its Job goes with it.",
            "It is gone once the finalizers in its metadata are.",
        )
    })
}

pub(super) fn unclassed(seen: &Seen) -> Option<Reason> {
    let Class { kind, plural, version, group, .. } = &seen.class;
    (!seen.classed).then(|| {
        Reason::new(
            "class-missing",
            format!("No StreamClass names the kind {kind}, so no operator looks at it."),
            format!(
                "Apply a StreamClass with apiGroupRef {group}, apiVersion {version}, kindRef {kind} \
                 and pluralName {plural}."
            ),
        )
    })
}

pub(super) fn class_state(seen: &Seen) -> Option<Reason> {
    let class = &seen.class;
    if !seen.classed || class.phase.eq_ignore_ascii_case("ready") {
        return None;
    }
    let phase = if class.phase.is_empty() { "not looked at yet" } else { &class.phase };
    let why = if class.message.is_empty() { String::new() } else { format!(": {}", class.message) };
    Some(Reason::new(
        "class-not-ready",
        format!("Its class {} is {phase}{why}. Its streams may not be watched.", class.name),
        match class.phase.is_empty() {
            true => "An operator makes it Ready; see whether one runs.",
            false => {
                "The operator tries again by itself; see the class with kubectl describe streamclass."
            }
        },
    ))
}

/// A Lease that nobody has renewed for this many times its duration is nobody's.
const STALE_TIMES: i64 = 3;

pub(super) fn operator(seen: &Seen) -> Option<Reason> {
    let start = "Start one with `mainstay operator`, or look at its Deployment.";
    match &seen.operator {
        Operator::Unknown => None,
        // Another operator may well be there, which uses none.
        Operator::None if seen.stream.other_writer.is_some() => None,
        Operator::None => Some(Reason::new(
            "no-operator",
            "No operator is running: there is no Lease of one in this cluster.",
            format!("{start} (One that was started with --no-lease has none.)"),
        )),
        Operator::Lease(place, lease) => {
            let age_s = seen.now.as_second() - lease.renewed.as_second();
            let stale = age_s > i64::from(lease.duration_s.max(1)) * STALE_TIMES;
            let (holder, ago) = (&lease.holder, distance(seen.now, lease.renewed));
            if lease.holder.is_empty() {
                let says = format!(
                    "No operator is running: the last one gave back the Lease {place} {ago}."
                );
                return Some(Reason::new("no-operator", says, start));
            }
            stale.then(|| {
                let says = format!(
                    "No operator is running: {holder} renewed the Lease {place} last {ago}."
                );
                Reason::new("no-operator", says, start)
            })
        }
    }
}

/// Within this time before now, another writer counts as there.
const RECENT_S: i64 = 15 * 60;

pub(super) fn other_operator(seen: &Seen) -> Option<Reason> {
    let (name, at) = seen.stream.other_writer.as_deref()?;
    let recent = seen.now.as_second() - at.as_second() < RECENT_S;
    let ours = matches!(&seen.operator, Operator::Lease(_, lease) if !lease.holder.is_empty());
    match (ours, recent) {
        (true, true) => Some(Reason::new(
            "another-operator",
            format!(
                "Another operator writes its status, too: {name}, {}.",
                distance(seen.now, *at)
            ),
            format!("Stop one of the two; `kubectl get deploy -A` may show what {name} is."),
        )),
        (false, _) if seen.operator == Operator::None => Some(Reason::new(
            "another-operator",
            format!(
                "It is looked after by another operator, which wrote its status as {name} {}.",
                distance(seen.now, *at)
            ),
            "What is said here is how Mainstay would see it.",
        )),
        _ => None,
    }
}
