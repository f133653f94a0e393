//! The planned destruction of an environment: warnings before it, an optional sleep, and the
//! destruction, once. The due time of its queue row is [`Next::Wait`]; what is done is a transition
//! that names the revision that was read, so an extension that wins makes it stale.

use std::time::Duration;

use kernel::Timestamp;

use crate::model::environment::{Environment, Status, Want};
use crate::model::period::Period;

/// How long before its destruction an environment's owner is warned, earliest first.
pub const WARNINGS: [Period; 3] =
    [Period::seconds(2 * 24 * 3600), Period::seconds(2 * 3600), Period::seconds(30 * 60)];
/// How often it is checked whether what held a destruction is gone.
const HELD_RECHECK: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It has no planned destruction, or it was carried out.
    Nothing,
    Wait(Timestamp),
    /// Warn that it is destroyed so long from the warning's time.
    Warn(Period),
    /// Stop it until then.
    Sleep,
    /// Destroy it.
    Fire,
    /// It is due, and these of other environments depend on it.
    Held {
        by: Vec<String>,
        recheck: Timestamp,
    },
}

/// Decides. `used_by` names the resources of other environments that depend on it.
pub fn next(spec: &Environment, status: &Status, used_by: &[String], now: Timestamp) -> Next {
    let Some(at) = spec.destroy_at else { return Next::Nothing };
    if status.fired_at.is_some() || spec.want == Want::Absent {
        return Next::Nothing;
    }
    if now >= at {
        return if used_by.is_empty() {
            Next::Fire
        } else {
            Next::Held { by: used_by.to_vec(), recheck: now.plus(HELD_RECHECK) }
        };
    }
    // After a time without a server, only the latest warning is worth reading.
    if let Some(warning) =
        pending(spec, status, at).filter(|warning| before(at, *warning) <= now).last()
    {
        return Next::Warn(warning);
    }
    let sleep = spec.sleep_before.filter(|_| spec.want == Want::Present);
    let sleep = sleep.map(|sleep| before(at, sleep));
    if sleep.is_some_and(|sleep| sleep <= now) {
        return Next::Sleep;
    }
    let warning = pending(spec, status, at).map(|warning| before(at, warning)).next();
    Next::Wait(warning.into_iter().chain(sleep).fold(at, Timestamp::min))
}

/// The warnings that were not given, earliest first. Those that were due before the destruction was
/// planned are not given at all: who plans it for in an hour knows.
fn pending(spec: &Environment, status: &Status, at: Timestamp) -> impl Iterator<Item = Period> {
    let planned = spec.destroy_set_at.unwrap_or(Timestamp(i64::MIN));
    let warned_s = status.warned_s.unwrap_or(u64::MAX);
    WARNINGS.into_iter().filter(move |warning| {
        warning.duration().as_secs() < warned_s && before(at, *warning) > planned
    })
}

fn before(at: Timestamp, period: Period) -> Timestamp {
    let ms = i64::try_from(period.duration().as_millis()).unwrap_or(i64::MAX);
    Timestamp(at.millis().saturating_sub(ms))
}

/// Why a destruction cannot be planned for a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is being destroyed")]
    TooLate,
    #[error("{0} has passed")]
    Past(Timestamp),
    #[error("its template allows it until {0}")]
    BeyondLimit(Timestamp),
    #[error("its template demands a planned destruction")]
    Needed,
}

/// Plans the destruction for another time, or for none. A template's limit counts from now: an
/// environment that is in use may be extended again and again, never far ahead.
pub fn plan_destruction(
    spec: &Environment,
    status: &Status,
    at: Option<Timestamp>,
    ttl_max: Option<Period>,
    now: Timestamp,
) -> Result<(Environment, Status), Refused> {
    if spec.want == Want::Absent || status.fired_at.is_some() {
        return Err(Refused::TooLate);
    }
    match (at, ttl_max) {
        (Some(at), _) if at <= now => return Err(Refused::Past(at)),
        (Some(at), Some(ttl)) if at > now.plus(ttl.duration()) => {
            return Err(Refused::BeyondLimit(now.plus(ttl.duration())));
        }
        (None, Some(_)) => return Err(Refused::Needed),
        _ => {}
    }
    let spec = Environment { destroy_at: at, destroy_set_at: Some(now), ..spec.clone() };
    let status = Status { warned_s: None, ..status.clone() };
    Ok((spec, status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::environment::ActingAs;

    const HOUR: i64 = 3_600_000;

    fn environment(destroy_at: i64) -> Environment {
        Environment {
            templates: Vec::new(),
            parameters: serde_json::Map::new(),
            want: Want::Present,
            destroy_at: Some(Timestamp(destroy_at)),
            destroy_set_at: Some(Timestamp(0)),
            sleep_before: None,
            plan: None,
            acting_as: ActingAs::default(),
        }
    }

    /// Runs it from time to time, and notes what it does when.
    fn run(
        spec: &mut Environment,
        status: &mut Status,
        clock: impl Iterator<Item = i64>,
    ) -> Vec<String> {
        let mut done = Vec::new();
        for now in clock.map(Timestamp) {
            let mut left = 10;
            loop {
                left -= 1;
                assert!(left > 0, "it ends");
                match next(spec, status, &[], now) {
                    Next::Nothing | Next::Held { .. } => break,
                    Next::Wait(due) => {
                        assert!(due > now, "it waits for the future");
                        break;
                    }
                    Next::Warn(warning) => {
                        status.warned_s = Some(warning.duration().as_secs());
                        done.push(format!("{warning}@{}", now.millis() / HOUR));
                    }
                    Next::Sleep => {
                        spec.want = Want::Stopped;
                        done.push(format!("sleep@{}", now.millis() / HOUR));
                    }
                    Next::Fire => {
                        (spec.want, status.fired_at) = (Want::Absent, Some(now));
                        done.push(format!("fire@{}", now.millis() / HOUR));
                    }
                }
            }
        }
        done
    }

    #[test]
    fn it_warns_three_times_and_fires_once() {
        let (mut spec, mut status) = (environment(100 * HOUR), Status::default());
        let clock = (0..220).map(|half| half * HOUR / 2);
        assert_eq!(run(&mut spec, &mut status, clock), ["2d@52", "2h@98", "30m@99", "fire@100"]);
    }

    #[test]
    fn a_short_life_has_only_the_warnings_that_fit() {
        let (mut spec, mut status) = (environment(HOUR), Status::default());
        assert_eq!(
            run(&mut spec, &mut status, (0..5).map(|half| half * HOUR / 2)),
            ["30m@0", "fire@1"]
        );
    }

    #[test]
    fn a_clock_that_jumps_gives_the_latest_warning_and_fires_once() {
        let (mut spec, mut status) = (environment(100 * HOUR), Status::default());
        let clock = [0, 99 * HOUR, 10 * HOUR, 99 * HOUR, 101 * HOUR, 50 * HOUR, 300 * HOUR];
        assert_eq!(run(&mut spec, &mut status, clock.into_iter()), ["2h@99", "fire@101"]);
    }

    #[test]
    fn it_may_sleep_first() {
        let (mut spec, mut status) = (environment(100 * HOUR), Status::default());
        spec.sleep_before = Some(Period::seconds(10 * 3600));
        let clock = (0..110).map(|hour| hour * HOUR);
        let done = run(&mut spec, &mut status, clock);
        assert_eq!(done, ["2d@52", "sleep@90", "2h@98", "fire@100"]);
    }

    #[test]
    fn what_others_depend_on_is_held_and_says_by_whom() {
        let spec = environment(HOUR);
        let now = Timestamp(2 * HOUR);
        let held = next(&spec, &Status::default(), &["net/app".into()], now);
        assert_eq!(
            held,
            Next::Held { by: vec!["net/app".into()], recheck: now.plus(HELD_RECHECK) }
        );
    }

    #[test]
    fn an_extension_has_a_limit_and_its_own_warnings() {
        let spec = environment(HOUR);
        let status = Status { warned_s: Some(1800), ..Status::default() };
        let now = Timestamp(HOUR / 2);
        let day = Some(Period::seconds(24 * 3600));
        let plan =
            |at: Option<i64>, ttl| plan_destruction(&spec, &status, at.map(Timestamp), ttl, now);
        let (extended, reset) = plan(Some(20 * HOUR), day).unwrap();
        assert_eq!((extended.destroy_at, reset.warned_s), (Some(Timestamp(20 * HOUR)), None));
        assert_eq!(next(&extended, &reset, &[], now), Next::Wait(Timestamp(18 * HOUR)));
        assert_eq!(plan(Some(0), day), Err(Refused::Past(Timestamp(0))));
        let limit = now.plus(Duration::from_secs(24 * 3600));
        assert_eq!(plan(Some(30 * HOUR), day), Err(Refused::BeyondLimit(limit)));
        assert_eq!(plan(None, day), Err(Refused::Needed));
        assert_eq!(plan(None, None).unwrap().0.destroy_at, None);
        let fired = Status { fired_at: Some(now), ..Status::default() };
        assert_eq!(plan_destruction(&spec, &fired, None, None, now), Err(Refused::TooLate));
    }
}
