//! The simulator finds nothing wrong, replays exactly, and finds every bug that is put in.

use testkit::memory::Bug;
use testkit::sim;

#[test]
fn the_kernel_keeps_its_promises_under_every_seed() {
    for seed in 0..150 {
        sim::run(seed, None).unwrap_or_else(|broken| panic!("seed {seed}: {}", broken.0));
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..10 {
        assert_eq!(sim::run(seed, None), sim::run(seed, None), "seed {seed}");
    }
    assert_ne!(sim::run(1, None), sim::run(2, None));
}

/// The first seed that finds a bug, among so many.
fn found(bug: Bug, within: u64) -> Option<u64> {
    (0..within).find(|seed| sim::run(*seed, Some(bug)).is_err())
}

macro_rules! finds {
    ($($name:ident: $bug:ident,)*) => {
        $(#[test]
        fn $name() {
            assert!(found(Bug::$bug, 300).is_some(), "the simulator does not see it");
        })*
    };
}

finds! {
    a_skipped_fence_check_is_found: SkipFenceCheck,
    a_dropped_wake_up_is_found: DropWakeUps,
    a_double_release_is_found: ReleaseTwice,
    a_forgotten_command_is_found: ForgetCommands,
    an_ignored_limit_is_found: IgnoreLimits,
    a_lost_event_is_found: LoseEvents,
    an_ignored_revision_is_found: IgnoreRevisions,
    trust_in_the_callers_clocks_is_found: TrustCallersClocks,
    a_cancellation_that_never_comes_is_found: StaleCache,
    a_run_that_is_named_by_the_clock_is_found: NameRunsByTheClock,
    a_lost_write_of_a_blob_is_found: IgnoreBlobVersions,
    a_forgotten_rejection_is_found: ForgetRejections,
    a_position_that_goes_back_is_found: IgnoreCursorFences,
}
