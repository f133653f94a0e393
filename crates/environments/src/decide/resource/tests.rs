//! What a resource waits for and writes; the bugs of the nearest peers, by name. The order of events
//! is for `exhaustive.rs`.

use std::time::Duration;

use kernel::Timestamp;
use serde_json::{Map, json};

use super::*;
use crate::model::drift::DriftPolicy;
use crate::model::environment::Want;
use crate::model::input::Input;
use crate::model::period::Period;
use crate::model::refs::Address;
use crate::model::resource::WaitReason;

fn spec(want: Want) -> Resource {
    Resource {
        environment: "shop".into(),
        address: Address::new("web", None),
        template: "shop@1".into(),
        executor: "simulated".into(),
        count: None,
        group: None,
        input: Input::default(),
        want,
        incarnation: 0,
        depends_on: vec![Reference::parse("db").unwrap()],
        drift: DriftPolicy::default(),
        timeout: Some(Period::seconds(60)),
        links: Vec::new(),
        price: None,
        tags: kernel::Labels::new(),
    }
}

fn neighbour(name: &str, state: NeighbourState) -> Neighbour {
    let reference = Reference::parse(name).unwrap();
    Neighbour { reference, state, since: Some(Timestamp(7)), reason: String::new(), former: false }
}

fn in_phase(phase: Phase) -> State {
    State { phase, current: phase != Phase::Pending && phase != Phase::Failed, ..State::PENDING }
}

fn next_of(phase: Phase, want: Want, observed: &Observed) -> Next {
    let done = Status { input_digest: "d".into(), ..Status::default() };
    let status = if phase == Phase::Pending { Status::default() } else { done };
    decide(phase, &spec(want), &status, observed, Timestamp(1000))
}

#[test]
fn all_unmet_dependencies_are_named_with_what_unblocks_them() {
    let resource = |name: &str, state: State| neighbour(name, NeighbourState::Resource(state));
    let failed = Neighbour { reason: "no disk".into(), ..resource("d", in_phase(Phase::Failed)) };
    let observed = Observed {
        dependencies: vec![
            resource("a", in_phase(Phase::Applying)),
            resource("b", in_phase(Phase::Ready)),
            neighbour("net/vpc", NeighbourState::Missing),
            failed,
            resource("e", State { want: Want::Stopped, ..in_phase(Phase::Ready) }),
            resource("f", State { current: false, ..in_phase(Phase::Ready) }),
            neighbour("external:billing", NeighbourState::External(false)),
            neighbour("external:mail", NeighbourState::External(true)),
        ],
        ..Observed::default()
    };
    let Next::Wait(waits) = next_of(Phase::Pending, Want::Present, &observed) else {
        panic!("waits")
    };
    let shown: Vec<String> = waits
        .iter()
        .map(|wait| format!("{} {}: {}", wait.on, wait.reason.label(), wait.unblock))
        .collect();
    assert_eq!(
        shown,
        [
            "a not-ready: wait until a is ready; it is applying",
            "net/vpc missing: create net/vpc, or remove the dependency",
            "d failed: repair d and retry it: no disk",
            "e not-wanted: start e",
            "f outdated: wait until f is updated",
            "external:billing unreachable: make external:billing respond to its probe",
        ]
    );
    assert_eq!(waits[0].since, Some(Timestamp(7)));
}

#[test]
fn a_blocked_destruction_says_by_whom() {
    let dependents = [Phase::Ready, Phase::Stopped, Phase::Pending];
    let names = ["a", "b", "other/c"];
    let dependents = names.into_iter().zip(dependents);
    let observed = Observed {
        dependents: dependents
            .map(|(name, phase)| neighbour(name, NeighbourState::Resource(in_phase(phase))))
            .collect(),
        ..Observed::default()
    };
    let waits = |want| match next_of(Phase::Ready, want, &observed) {
        Next::Wait(waits) => waits,
        next => panic!("{next:?}"),
    };
    let absent = waits(Want::Absent);
    let shown: Vec<&str> = absent.iter().map(|wait| wait.unblock.as_str()).collect();
    assert_eq!(shown, ["destroy a", "destroy b"]);
    let stopped = waits(Want::Stopped);
    assert_eq!((stopped.len(), stopped[0].reason), (1, WaitReason::UsedBy));
    assert_eq!(stopped[0].unblock, "stop a");
}

/// Walrus #1575, #1610, #1491, #2155; #1759; #1628; #1612.
#[test]
fn the_bugs_of_walrus_are_not_here() {
    let with = |dependents: &[Phase]| Observed {
        dependents: dependents
            .iter()
            .map(|phase| neighbour("b", NeighbourState::Resource(in_phase(*phase))))
            .collect(),
        dependencies: vec![neighbour("db", NeighbourState::Resource(in_phase(Phase::Ready)))],
        ..Observed::default()
    };
    let stop = |dependents| next_of(Phase::Ready, Want::Stopped, &with(dependents));
    assert_eq!(
        stop(&[Phase::Stopped]),
        Next::Begin(Operation::Stop),
        "an already stopped dependent"
    );
    assert_eq!(
        stop(&[Phase::Pending]),
        Next::Begin(Operation::Stop),
        "a draft that was never deployed"
    );
    assert!(matches!(stop(&[Phase::Stopping]), Next::Wait(_)));
    // Start while it stops: the stop is finished, then it starts.
    assert_eq!(
        next_of(Phase::Stopping, Want::Present, &with(&[])),
        Next::Continue(Operation::Stop)
    );
    assert_eq!(next_of(Phase::Stopped, Want::Present, &with(&[])), Next::Begin(Operation::Start));
    // A clone begins when the outputs that it needs exist, and says until then what it waits for.
    let mut clone = with(&[]);
    clone.dependencies[0].state = NeighbourState::Resource(State::PENDING);
    assert!(matches!(next_of(Phase::Pending, Want::Present, &clone), Next::Wait(_)));
}

#[test]
fn an_operation_that_never_ends_fails() {
    let status = Status { since: Some(Timestamp(0)), ..Status::default() };
    let decide =
        |now| decide(Phase::Applying, &spec(Want::Present), &status, &Observed::default(), now);
    assert_eq!(decide(Timestamp(59_999)), Next::Continue(Operation::Apply));
    let late = decide(Timestamp(0).plus(Duration::from_secs(60)));
    assert_eq!(late, Next::Fail("applying took more than 60 s".into()));
}

#[test]
fn a_failed_one_waits_for_its_retry() {
    let mut observed = Observed::default();
    let status = Status { reason: "no disk".into(), ..Status::default() };
    let next = |observed: &Observed| {
        decide(Phase::Failed, &spec(Want::Present), &status, observed, Timestamp(0))
    };
    assert_eq!(next(&observed), Next::Settled);
    observed.retry = true;
    assert_eq!(next(&observed), Next::Begin(Operation::Apply));
}

#[test]
fn a_changed_input_is_applied_and_the_same_is_not() {
    let mut observed = Observed { wanted_digest: Some("d".into()), ..Observed::default() };
    assert_eq!(next_of(Phase::Ready, Want::Present, &observed), Next::Settled);
    observed.wanted_digest = Some("e".into());
    assert_eq!(next_of(Phase::Ready, Want::Present, &observed), Next::Begin(Operation::Apply));
    assert_eq!(next_of(Phase::Stopped, Want::Present, &observed), Next::Begin(Operation::Apply));
}

#[test]
fn what_is_written_before_and_after_an_operation() {
    let old = Reference::parse("old").unwrap();
    let spec = Resource { incarnation: 2, ..spec(Want::Present) };
    let status = Status { applied_on: vec![old.clone()], ..Status::default() };
    let begun = entered(Phase::Ready, &spec, &status, Operation::Apply, Timestamp(100));
    assert_eq!((begun.incarnation, begun.since), (2, Some(Timestamp(100))));
    assert_eq!(
        begun.applied_on,
        [old, spec.depends_on[0].clone()],
        "both must stay until it is done"
    );
    let again = entered(Phase::Stopped, &spec, &status, Operation::Start, Timestamp(100));
    assert_eq!(again.applied_on, spec.depends_on, "one that is stopped uses nothing");
    let mut outputs = Map::new();
    outputs.insert("host".into(), json!("h"));
    let done = Outcome::Done { outputs, input_digest: "d".into() };
    let (phase, ready) = finished(&spec, &begun, Operation::Apply, done, Timestamp(350));
    assert_eq!((phase, ready.took_ms), (Some(Phase::Ready), Some(250)));
    assert_eq!(
        (ready.applied_on.as_slice(), ready.input_digest.as_str()),
        (spec.depends_on.as_slice(), "d")
    );
    let failed = Outcome::Failed("no disk".into());
    let (phase, failed) = finished(&spec, &ready, Operation::Stop, failed, Timestamp(400));
    assert_eq!(
        (phase, failed.reason.as_str(), failed.input_digest.as_str()),
        (Some(Phase::Failed), "no disk", "")
    );
    assert_eq!(failed.outputs["host"], "h");
    let done = || Outcome::Done { outputs: Map::new(), input_digest: String::new() };
    let (phase, again) = finished(&spec, &ready, Operation::Destroy, done(), Timestamp(500));
    assert_eq!((phase, again.outputs.len()), (Some(Phase::Pending), 0), "it was replaced");
    let absent = Resource { want: Want::Absent, ..spec };
    assert_eq!(finished(&absent, &ready, Operation::Destroy, done(), Timestamp(500)).0, None);
}
