//! Decides what an attempt does: from the desired and the observed state to steps and a change.
//! Pure.

use std::time::Duration;

use kernel::change::{EventDraft, Write};
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Json, Key, Object, Timestamp};

use super::{audit, releases};
use crate::widgets::model::{Phase, Spec, Status};

/// The observed state.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The generation that the workshop has built, if any.
    pub built: Option<i64>,
    pub dependencies: Vec<Object>,
    /// Existing widgets that depend on it.
    pub dependents: Vec<Key>,
    /// Wake-ups are hints: the delay that a lost one may cost.
    pub recheck: Duration,
}

/// One idempotent effect in the workshop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Build { generation: i64, size: u32, hold_s: u32, polls: u32 },
    Demolish,
}

pub fn decide(object: &Object, spec: &Spec, observed: &Observed, now: Timestamp) -> Decision<Step> {
    if object.deleted_at.is_some() {
        return Decision::idle(Requeue::Never);
    }
    if spec.deleting {
        return delete(object, observed, now);
    }
    let unready: Vec<&Object> = observed
        .dependencies
        .iter()
        .filter(|object| object.phase != Phase::Ready.label())
        .collect();
    if !unready.is_empty() {
        return wait(object, spec, &unready, observed, now);
    }
    let built = observed.built == Some(object.generation);
    let current = object.phase == Phase::Ready.label() && object.observed == object.generation;
    if built && current {
        return Decision::idle(Requeue::Never);
    }
    let Spec { size, hold_s, polls, .. } = *spec;
    let build = Step::Build { generation: object.generation, size, hold_s, polls };
    let status = Status { waiting_for: Vec::new(), size: spec.size };
    let mut change = transition(object, Phase::Ready, &status, now);
    change.wake_dependents = true;
    Decision {
        steps: if built { Vec::new() } else { vec![build] },
        change,
        requeue: Requeue::Never,
    }
}

/// Waits for its dependencies. The change is refused if one of them was written since it was read,
/// so that no wake-up is lost in between.
fn wait(
    object: &Object,
    spec: &Spec,
    unready: &[&Object],
    observed: &Observed,
    now: Timestamp,
) -> Decision<Step> {
    let waiting_for = unready.iter().map(|object| object.key.clone()).collect();
    let mut change =
        update_if_changed(object, Phase::Waiting, Status { waiting_for, size: spec.size }, now);
    change.expects = unready.iter().map(|object| (object.key.clone(), object.revision)).collect();
    Decision { steps: Vec::new(), change, requeue: Requeue::After(observed.recheck) }
}

/// Writes what it waits for, if that changed.
fn update_if_changed(object: &Object, phase: Phase, status: Status, now: Timestamp) -> Change {
    let unchanged = object.phase == phase.label() && object.status == Json::encode(&status);
    if unchanged { Change::default() } else { transition(object, phase, &status, now) }
}

/// Waits until nothing depends on it, then demolishes it and releases its quota and name.
fn delete(object: &Object, observed: &Observed, now: Timestamp) -> Decision<Step> {
    if !observed.dependents.is_empty() {
        let status = Status { waiting_for: observed.dependents.clone(), size: 0 };
        let change = update_if_changed(object, Phase::Deleting, status, now);
        return Decision { steps: Vec::new(), change, requeue: Requeue::After(observed.recheck) };
    }
    let mut gone = object.clone();
    gone.phase = Phase::Deleted.label().into();
    gone.observed = gone.generation;
    gone.deleted_at = Some(now);
    gone.updated_at = now;
    let change = Change {
        event: Some(EventDraft::for_object(&gone, "deleted")),
        audit: Some(audit("mainstay", "widget.deleted", &gone, None)),
        releases: releases(&gone),
        depends_on: Some(Vec::new()),
        wake_dependencies: true,
        write: Some(Write::Update(gone)),
        ..Change::default()
    };
    // Also if nothing was built: a paused replica may be about to build, and only a newer fence in
    // the workshop prevents that.
    Decision { steps: vec![Step::Demolish], change, requeue: Requeue::Never }
}

fn transition(object: &Object, phase: Phase, status: &Status, now: Timestamp) -> Change {
    let mut object = object.clone();
    object.phase = phase.label().into();
    object.status = Json::encode(status);
    object.updated_at = now;
    if phase == Phase::Ready {
        object.observed = object.generation;
    }
    Change {
        event: Some(EventDraft::for_object(&object, phase.label())),
        audit: Some(audit("mainstay", &format!("widget.{}", phase.label()), &object, None)),
        write: Some(Write::Transition(object)),
        ..Change::default()
    }
}
