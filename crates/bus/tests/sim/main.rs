//! The relay in the simulator: several replicas with stores that fail, freeze and crash, clocks that
//! jump, and a broker that delays, loses answers and fences. Whatever happens: every event arrives, in
//! order, and never an old one after its successor's. Commands are carried out once.

mod broker;
mod consumers;
mod world;

use world::{Guarantee, run};

const SEEDS: u64 = 150;
const SEEDS_OF_CONSUMERS: u64 = 50;

fn all(guarantee: Guarantee) {
    for seed in 0..SEEDS {
        if let Err(broken) = run(seed, guarantee, None) {
            panic!("seed {seed}: {broken}");
        }
    }
}

#[test]
fn a_broker_that_keeps_the_position_has_every_event_exactly_once() {
    all(Guarantee::ExactlyOnce);
}

#[test]
fn a_broker_without_has_every_event_at_least_once_and_the_newest_last() {
    all(Guarantee::AtLeastOnce);
}

/// A simulator that finds nothing proves nothing.
#[test]
fn planted_faults_are_found() {
    use broker::Bug;
    for (bug, guarantee) in [
        (Bug::NoFence, Guarantee::AtLeastOnce),
        (Bug::NoFence, Guarantee::ExactlyOnce),
        (Bug::ForgetsPosition, Guarantee::ExactlyOnce),
        (Bug::AcknowledgesTooEarly, Guarantee::AtLeastOnce),
    ] {
        let found = (0..SEEDS).find(|seed| run(*seed, guarantee, Some(bug)).is_err());
        assert!(found.is_some(), "{bug:?} is not found with {guarantee:?}");
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..5 {
        let (first, second) =
            (run(seed, Guarantee::AtLeastOnce, None), run(seed, Guarantee::AtLeastOnce, None));
        assert_eq!(first, second);
    }
}

#[test]
fn commands_are_carried_out_once_or_rejected_for_good_and_none_is_lost() {
    let (mut done, mut rejected) = (0, 0);
    for seed in 0..SEEDS_OF_CONSUMERS {
        match consumers::run(seed, None) {
            Ok(counts) => (done, rejected) = (done + counts.0, rejected + counts.1),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    assert!(done > 1000 && rejected > 100, "{done} and {rejected} prove little");
}

#[test]
fn planted_faults_of_consumers_are_found() {
    use consumers::Bug;
    for bug in [Bug::AcknowledgesFirst, Bug::BuriesLast, Bug::ForgetsIds] {
        let found = (0..SEEDS).find(|seed| consumers::run(*seed, Some(bug)).is_err());
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
