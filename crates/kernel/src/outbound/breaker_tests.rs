//! The breaker's transitions one by one, and its invariants on any path.

use proptest::prelude::*;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp(1_000_000 + ms)
}

fn config() -> Config {
    Config {
        failures_in_row: 3,
        failure_ratio: 0.5,
        window_calls_min: 10,
        window_ms: 1_000,
        open_ms: 100,
        open_max_ms: 350,
        probe_ms: 50,
    }
}

fn fail(breaker: &mut Breaker, now: Timestamp) {
    let permit = breaker.admit(now).unwrap();
    breaker.report(permit, false, now);
}

fn work(breaker: &mut Breaker, now: Timestamp) {
    let permit = breaker.admit(now).unwrap();
    breaker.report(permit, true, now);
}

fn opened_at(now: Timestamp) -> Breaker {
    let mut breaker = Breaker::new(config());
    (0..3).for_each(|_| fail(&mut breaker, now));
    assert_eq!(breaker.phase(), Phase::Open);
    breaker
}

#[test]
fn it_opens_after_failures_in_a_row_and_a_success_resets_the_count() {
    let mut breaker = Breaker::new(config());
    fail(&mut breaker, at(0));
    fail(&mut breaker, at(1));
    work(&mut breaker, at(2));
    fail(&mut breaker, at(3));
    fail(&mut breaker, at(4));
    assert_eq!(breaker.phase(), Phase::Closed);
    fail(&mut breaker, at(5));
    assert_eq!(breaker.phase(), Phase::Open);
    assert_eq!(breaker.admit(at(5)).unwrap_err(), Duration::from_millis(100));
    assert_eq!(breaker.admit(at(104)).unwrap_err(), Duration::from_millis(1));
}

#[test]
fn failures_in_a_row_count_however_slowly_they_come() {
    let mut breaker = Breaker::new(config());
    for i in 0..3 {
        fail(&mut breaker, at(i * 5_000));
    }
    assert_eq!(breaker.phase(), Phase::Open);
}

#[test]
fn it_opens_when_half_of_a_busy_window_fails_and_not_when_the_window_has_passed() {
    let mut busy = Breaker::new(config());
    for i in 0..5 {
        assert_eq!(busy.phase(), Phase::Closed);
        work(&mut busy, at(i * 2));
        fail(&mut busy, at(i * 2 + 1));
    }
    assert_eq!(busy.phase(), Phase::Open);

    let mut slow = Breaker::new(config());
    for i in 0..50 {
        work(&mut slow, at(i * 400));
        fail(&mut slow, at(i * 400 + 1));
    }
    assert_eq!(slow.phase(), Phase::Closed, "no window of a second has ten calls");
}

#[test]
fn one_probe_goes_at_a_time_and_its_success_closes() {
    let mut breaker = opened_at(at(0));
    let probe = breaker.admit(at(100)).unwrap();
    assert_eq!(breaker.phase(), Phase::HalfOpen);
    assert_eq!(breaker.admit(at(110)).unwrap_err(), Duration::from_millis(40));
    breaker.report(probe, true, at(120));
    assert_eq!(breaker.phase(), Phase::Closed);
    assert!(breaker.admit(at(120)).is_ok());
}

#[test]
fn each_failed_probe_doubles_the_wait_up_to_the_most_and_success_forgets_it() {
    let mut breaker = opened_at(at(0));
    let mut now = at(0);
    for expected_ms in [100, 200, 350, 350] {
        let wait = breaker.admit(now).unwrap_err();
        assert_eq!(wait, Duration::from_millis(expected_ms));
        now = now.plus(wait);
        fail(&mut breaker, now);
        assert_eq!(breaker.phase(), Phase::Open);
    }
    now = now.plus(Duration::from_millis(350));
    work(&mut breaker, now);
    (0..3).for_each(|_| fail(&mut breaker, now));
    assert_eq!(breaker.admit(now).unwrap_err(), Duration::from_millis(100));
}

#[test]
fn a_probe_that_never_reports_does_not_hold_the_door_and_its_late_report_says_nothing() {
    let mut breaker = opened_at(at(0));
    let lost = breaker.admit(at(100)).unwrap();
    assert!(breaker.admit(at(149)).is_err());
    let second = breaker.admit(at(150)).unwrap();
    breaker.report(lost, true, at(151));
    assert_eq!(breaker.phase(), Phase::HalfOpen, "only the second probe decides");
    breaker.report(second, false, at(152));
    assert_eq!(breaker.phase(), Phase::Open);
}

#[test]
fn a_call_from_before_it_opened_cannot_close_it() {
    let mut breaker = Breaker::new(config());
    let early = breaker.admit(at(0)).unwrap();
    (0..3).for_each(|_| fail(&mut breaker, at(1)));
    breaker.report(early, true, at(2));
    assert_eq!(breaker.phase(), Phase::Open);
}

#[test]
fn a_clock_set_back_does_not_hold_calls_for_longer_than_meant() {
    let mut breaker = opened_at(at(1_000_000));
    assert_eq!(breaker.admit(at(0)).unwrap_err(), Duration::from_millis(100));
    assert!(breaker.admit(at(100)).is_ok());
}

proptest! {
    #[test]
    fn whatever_happens_it_lets_a_call_through_after_the_longest_wait(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), -200_i64..400), 0..200),
    ) {
        let mut breaker = Breaker::new(config());
        let mut now = at(0);
        let mut held: Vec<Permit> = Vec::new();
        for (worked, report_now, pass_ms) in steps {
            now = Timestamp(now.0 + pass_ms);
            match breaker.admit(now) {
                Ok(permit) => {
                    prop_assert_ne!(breaker.phase(), Phase::Open);
                    held.push(permit);
                }
                Err(wait) => {
                    prop_assert!(!wait.is_zero() && wait <= Duration::from_millis(350));
                    prop_assert_ne!(breaker.phase(), Phase::Closed);
                }
            }
            if report_now && let Some(permit) = held.pop() {
                breaker.report(permit, worked, now);
            }
        }
        prop_assert!(breaker.admit(now.plus(Duration::from_millis(350))).is_ok());
    }

    #[test]
    fn a_system_that_never_fails_never_sees_it_open(gaps in prop::collection::vec(0_i64..5_000, 0..100)) {
        let mut breaker = Breaker::new(config());
        let mut now = at(0);
        for gap in gaps {
            now = Timestamp(now.0 + gap);
            work(&mut breaker, now);
            prop_assert_eq!(breaker.phase(), Phase::Closed);
        }
    }
}
