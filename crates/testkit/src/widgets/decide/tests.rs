//! The decisions about a widget, case by case.

use std::time::Duration;

use kernel::driver::{Decision, Requeue};
use kernel::{Key, Object, Timestamp};

use super::*;
use crate::widgets::model::{KIND, Phase, Spec, Status, Widget};

fn widget(phase: Phase, generation: i64, observed: i64) -> Object {
    let mut object =
        Object::new(Key::new(KIND, "a"), "acme", "alice", "a", phase.label(), Timestamp(0));
    (object.generation, object.observed) = (generation, observed);
    object
}

fn decide(object: &Object, spec: &Spec, observed: &Observed, now: Timestamp) -> Decision<Step> {
    let widget = Widget { spec: spec.clone(), ..Widget::from_object(object).unwrap() };
    super::decide(object, &widget, observed, now)
}

fn observed(built: Option<i64>) -> Observed {
    Observed { built, dependencies: Vec::new(), dependents: Vec::new(), recheck: Duration::ZERO }
}

#[test]
fn a_converged_widget_plans_nothing() {
    let decision =
        decide(&widget(Phase::Ready, 3, 3), &Spec::default(), &observed(Some(3)), Timestamp(1));
    assert!(decision.steps.is_empty() && decision.change.write.is_none());
    assert_eq!(decision.requeue, Requeue::Never);
}

#[test]
fn what_was_built_before_a_crash_is_not_built_again() {
    let decision =
        decide(&widget(Phase::Accepted, 2, 0), &Spec::default(), &observed(Some(2)), Timestamp(1));
    assert!(decision.steps.is_empty());
    assert_eq!(decision.change.write.expect("it is ready now").object.phase, "ready");
}

#[test]
fn an_older_build_is_replaced() {
    let spec = Spec { size: 7, ..Spec::default() };
    let decision = decide(&widget(Phase::Ready, 2, 1), &spec, &observed(Some(1)), Timestamp(1));
    assert_eq!(decision.steps, [Step::Build { generation: 2, size: 7, hold_s: 0, polls: 0 }]);
}

#[test]
fn it_is_deleted_after_its_dependents_and_releases_everything() {
    let spec = Spec { deleting: true, ..Spec::default() };
    let object = widget(Phase::Deleting, 2, 1);
    let held = Observed { dependents: vec![Key::new(KIND, "b")], ..observed(Some(1)) };
    let decision = decide(&object, &spec, &held, Timestamp(1));
    assert!(decision.steps.is_empty() && decision.change.releases.is_empty());
    let unbuilt = decide(&object, &spec, &observed(None), Timestamp(1));
    assert_eq!(unbuilt.steps, [Step::Demolish], "a paused worker may be about to build");
    let decision = decide(&object, &spec, &observed(Some(1)), Timestamp(1));
    assert_eq!(decision.steps, [Step::Demolish]);
    assert_eq!(decision.change.releases.len(), 2);
    assert!(decision.change.wake_dependencies);
}

#[test]
fn waiting_names_the_dependencies_and_their_revisions() {
    let mut base = widget(Phase::Accepted, 1, 0);
    base.key = Key::new(KIND, "base");
    base.revision = 5;
    let unready = Observed { dependencies: vec![base], ..observed(None) };
    let decision = decide(&widget(Phase::Accepted, 1, 0), &Spec::default(), &unready, Timestamp(1));
    assert_eq!(decision.change.expects, [(Key::new(KIND, "base"), 5)]);
    let status: Status = decision.change.write.unwrap().object.status.parse().unwrap();
    assert_eq!(status.waiting_for, [Key::new(KIND, "base")]);
}
