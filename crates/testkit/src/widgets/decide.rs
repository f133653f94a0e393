//! What to do about a widget, from what is wanted and what was seen. Pure.

use std::time::Duration;

use kernel::change::{EventDraft, Write};
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Json, Key, Object, Timestamp};

use super::model::{Phase, Spec, Status, audit, releases};

/// What was seen of the world.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The generation that the workshop has built; `None` if there is nothing.
    pub built: Option<i64>,
    pub dependencies: Vec<Object>,
    /// What depends on it and is still there.
    pub dependents: Vec<Key>,
    /// Wake-ups are hints: this is how long a lost one may cost.
    pub look_again: Duration,
}

/// One idempotent act in the workshop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Build { generation: i64, size: u32 },
    Demolish,
}

pub fn decide(object: &Object, spec: &Spec, observed: &Observed, now: Timestamp) -> Decision<Step> {
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
    let settled = object.phase == Phase::Ready.label() && object.observed == object.generation;
    if built && settled {
        return Decision::idle(Requeue::Never);
    }
    let build = Step::Build { generation: object.generation, size: spec.size };
    let status = Status { waiting_for: Vec::new(), size: spec.size };
    let mut change = transition(object, Phase::Ready, &status, now);
    change.wake_dependents = true;
    Decision {
        steps: if built { Vec::new() } else { vec![build] },
        change,
        requeue: Requeue::Never,
    }
}

/// Waits for what it depends on. The write is refused if one of them has changed since it was
/// read, so that its wake-up cannot fall between the reading and the waiting.
fn wait(
    object: &Object,
    spec: &Spec,
    unready: &[&Object],
    observed: &Observed,
    now: Timestamp,
) -> Decision<Step> {
    let waiting_for = unready.iter().map(|object| object.key.clone()).collect();
    let mut change = explain(object, Phase::Waiting, Status { waiting_for, size: spec.size }, now);
    change.expects = unready.iter().map(|object| (object.key.clone(), object.revision)).collect();
    Decision { steps: Vec::new(), change, requeue: Requeue::After(observed.look_again) }
}

/// Writes what it waits for, if that is news.
fn explain(object: &Object, phase: Phase, status: Status, now: Timestamp) -> Change {
    let known = object.phase == phase.label() && object.status == Json::encode(&status);
    if known { Change::default() } else { transition(object, phase, &status, now) }
}

/// Last of all that depends on it; then the workshop, then everything that it holds here.
fn delete(object: &Object, observed: &Observed, now: Timestamp) -> Decision<Step> {
    if !observed.dependents.is_empty() {
        let status = Status { waiting_for: observed.dependents.clone(), size: 0 };
        let change = explain(object, Phase::Deleting, status, now);
        return Decision {
            steps: Vec::new(),
            change,
            requeue: Requeue::After(observed.look_again),
        };
    }
    let mut gone = object.clone();
    gone.phase = Phase::Deleted.label().into();
    gone.observed = gone.generation;
    gone.deleted_at = Some(now);
    gone.updated_at = now;
    let change = Change {
        event: Some(EventDraft::of(&gone, "deleted")),
        audit: Some(audit("mainstay", "widget.deleted", &gone, None)),
        releases: releases(&gone),
        depends_on: Some(Vec::new()),
        wake_dependencies: true,
        write: Some(Write::Update(gone)),
        ..Change::default()
    };
    // Also if nothing stands there: a replica that was paused may be about to build, and only a
    // newer fence in the workshop keeps it from that.
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
        event: Some(EventDraft::of(&object, phase.label())),
        audit: Some(audit("mainstay", &format!("widget.{}", phase.label()), &object, None)),
        write: Some(Write::Transition(object)),
        ..Change::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::widgets::model::KIND;

    fn widget(phase: Phase, generation: i64, observed: i64) -> Object {
        let mut object =
            Object::new(Key::new(KIND, "a"), "acme", "alice", "a", phase.label(), Timestamp(0));
        (object.generation, object.observed) = (generation, observed);
        object
    }

    fn seen(built: Option<i64>) -> Observed {
        Observed {
            built,
            dependencies: Vec::new(),
            dependents: Vec::new(),
            look_again: Duration::ZERO,
        }
    }

    #[test]
    fn a_converged_world_plans_nothing() {
        let decision =
            decide(&widget(Phase::Ready, 3, 3), &Spec::default(), &seen(Some(3)), Timestamp(1));
        assert!(decision.steps.is_empty() && decision.change.write.is_none());
        assert_eq!(decision.requeue, Requeue::Never);
    }

    #[test]
    fn what_was_built_before_a_crash_is_not_built_again() {
        let decision =
            decide(&widget(Phase::Accepted, 2, 0), &Spec::default(), &seen(Some(2)), Timestamp(1));
        assert!(decision.steps.is_empty());
        assert_eq!(decision.change.write.expect("it is ready now").object().phase, "ready");
    }

    #[test]
    fn an_older_build_is_replaced() {
        let spec = Spec { size: 7, ..Spec::default() };
        let decision = decide(&widget(Phase::Ready, 2, 1), &spec, &seen(Some(1)), Timestamp(1));
        assert_eq!(decision.steps, [Step::Build { generation: 2, size: 7 }]);
    }

    #[test]
    fn it_goes_after_what_depends_on_it_and_gives_everything_back() {
        let spec = Spec { deleting: true, ..Spec::default() };
        let object = widget(Phase::Deleting, 2, 1);
        let held = Observed { dependents: vec![Key::new(KIND, "b")], ..seen(Some(1)) };
        let decision = decide(&object, &spec, &held, Timestamp(1));
        assert!(decision.steps.is_empty() && decision.change.releases.is_empty());
        let unseen = decide(&object, &spec, &seen(None), Timestamp(1));
        assert_eq!(unseen.steps, [Step::Demolish], "a paused worker may be about to build");
        let decision = decide(&object, &spec, &seen(Some(1)), Timestamp(1));
        assert_eq!(decision.steps, [Step::Demolish]);
        assert_eq!(decision.change.releases.len(), 2);
        assert!(decision.change.wake_dependencies);
    }

    #[test]
    fn waiting_names_what_it_waits_for_and_what_it_read() {
        let mut base = widget(Phase::Accepted, 1, 0);
        base.key = Key::new(KIND, "base");
        base.revision = 5;
        let observed = Observed { dependencies: vec![base], ..seen(None) };
        let decision =
            decide(&widget(Phase::Accepted, 1, 0), &Spec::default(), &observed, Timestamp(1));
        assert_eq!(decision.change.expects, [(Key::new(KIND, "base"), 5)]);
        let status: Status = decision.change.write.unwrap().object().status.parse().unwrap();
        assert_eq!(status.waiting_for, [Key::new(KIND, "base")]);
    }
}
