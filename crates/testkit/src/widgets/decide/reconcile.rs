//! Decides what an attempt does: from the desired and the observed state to steps and a change.
//! Pure.

use std::time::Duration;

use kernel::change::Write;
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Draft, Key, Object, Timestamp};

use super::audit;
use crate::widgets::model::{Phase, Spec, Status, Widget, name_counter, quota_counter};

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

pub fn decide(
    object: &Object,
    widget: &Widget,
    observed: &Observed,
    now: Timestamp,
) -> Decision<Step> {
    if object.deleted_at.is_some() {
        return Decision::idle(Requeue::Never);
    }
    if widget.spec.deleting {
        return delete(object, widget, observed, now);
    }
    let unready: Vec<&Object> = observed
        .dependencies
        .iter()
        .filter(|object| object.phase != Phase::Ready.label())
        .collect();
    if !unready.is_empty() {
        return wait(object, widget, &unready, observed, now);
    }
    let built = observed.built == Some(object.generation);
    let current = widget.phase == Phase::Ready && object.observed == object.generation;
    if built && current {
        return Decision::idle(Requeue::Never);
    }
    let Spec { size, hold_s, polls, .. } = widget.spec;
    let build = Step::Build { generation: object.generation, size, hold_s, polls };
    let status = Status { waiting_for: Vec::new(), size };
    let ready = Draft::<Spec>::of(object).phase(&Phase::Ready).status(&status);
    let mut change = audited(ready.transition(Phase::Ready.label(), now));
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
    widget: &Widget,
    unready: &[&Object],
    observed: &Observed,
    now: Timestamp,
) -> Decision<Step> {
    let waiting_for = unready.iter().map(|object| object.key.clone()).collect();
    let status = Status { waiting_for, size: widget.spec.size };
    let mut change = update_if_changed(object, widget, Phase::Waiting, status, now);
    change.expects = unready.iter().map(|object| (object.key.clone(), object.revision)).collect();
    Decision { steps: Vec::new(), change, requeue: Requeue::After(observed.recheck) }
}

/// Writes what it waits for, if that changed.
fn update_if_changed(
    object: &Object,
    widget: &Widget,
    phase: Phase,
    status: Status,
    now: Timestamp,
) -> Change {
    if widget.phase == phase && widget.status == status {
        return Change::default();
    }
    audited(Draft::<Spec>::of(object).phase(&phase).status(&status).report(phase.label(), now))
}

/// Waits until nothing depends on it, then demolishes it and releases its quota and name.
fn delete(object: &Object, widget: &Widget, observed: &Observed, now: Timestamp) -> Decision<Step> {
    if !observed.dependents.is_empty() {
        let status = Status { waiting_for: observed.dependents.clone(), size: 0 };
        let change = update_if_changed(object, widget, Phase::Deleting, status, now);
        return Decision { steps: Vec::new(), change, requeue: Requeue::After(observed.recheck) };
    }
    let gone = Draft::<Spec>::of(object).phase(&Phase::Deleted);
    let Widget { org, name, .. } = widget;
    let change = Change {
        releases: widget.releases([quota_counter(org), name_counter(org, name)]),
        depends_on: Some(Vec::new()),
        wake_dependencies: true,
        ..audited(gone.delete(Phase::Deleted.label(), now))
    };
    // Also if nothing was built: a paused replica may be about to build, and only a newer fence in
    // the workshop prevents that.
    Decision { steps: vec![Step::Demolish], change, requeue: Requeue::Never }
}

fn audited(write: Write) -> Change {
    let action = format!("widget.{}", write.event);
    let hop = write.object.deleted_at.is_none() && write.event != Phase::Ready.label();
    let audit = Some(audit("mainstay", &action, &write.object, None));
    Change { audit, hop, ..Change::from(write) }
}
