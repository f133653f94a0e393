//! Decides when a schedule's command is carried out, and what creating or deleting one writes. Pure.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::{CatchUp, Cron, KIND, Phase, Run, Spec, Status};
use crate::change::{Release, Take, Wake};
use crate::command::Envelope;
use crate::identity::{ADMIN_ROLES, Principal};
use crate::{Change, Draft, Error, Key, Object, Result, Timestamp};

/// A time that passed longer ago was missed. Longer than retries of a busy or restarting server take.
const LATE_MAX: Duration = Duration::from_secs(600);
/// Schedules that an organisation may have.
const SCHEDULES_MAX: i64 = 1000;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Nothing before then; never, if there is no such time.
    Wait(Option<Timestamp>),
    /// Carry out the command of this time, the latest one that has come.
    Run { planned: Timestamp, next: Option<Timestamp> },
    /// That time was missed.
    Skip { planned: Timestamp, next: Option<Timestamp> },
}

/// Times up to `handled` need nothing more. If the clock is set back below it, they do not come
/// again.
pub fn plan(
    (cron, zone): &(Cron, TimeZone),
    catch_up: CatchUp,
    handled: Timestamp,
    now: Timestamp,
) -> Plan {
    let next = |after: Timestamp| {
        let at = cron.next(jiff::Timestamp::from_millisecond(after.0).ok()?, zone)?;
        Some(Timestamp(at.as_millisecond()))
    };
    let Some(planned) = latest(next, handled, now) else { return Plan::Wait(next(handled)) };
    let next = next(planned);
    if catch_up == CatchUp::Skip && planned.plus(LATE_MAX) < now {
        Plan::Skip { planned, next }
    } else {
        Plan::Run { planned, next }
    }
}

/// The latest time after `handled` that has come. Looks back a little first: there may have been
/// very many.
fn latest(
    next: impl Fn(Timestamp) -> Option<Timestamp>,
    handled: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    const HOUR_MS: i64 = 3_600_000;
    for hours in [1, 24, 32 * 24, 366 * 24, i64::MAX / HOUR_MS] {
        let from = handled.max(Timestamp(now.0.saturating_sub(hours * HOUR_MS)));
        let come = |after: &Timestamp| next(*after).filter(|at| *at <= now);
        let found = std::iter::successors(come(&from), come).last();
        if found.is_some() || from == handled {
            return found;
        }
    }
    None
}

/// The schedule after a run. The planned time is handled, however it ended.
pub fn ran(object: &Object, status: &Status, run: Run, next: Option<Timestamp>) -> Change {
    let what = match run.result.as_str() {
        "done" => "ran",
        "skipped" => "skipped",
        _ => "failed",
    };
    let (now, handled) = (run.at, Some(run.planned).max(status.handled));
    let status = Status { handled, next, last: Some(run) };
    Draft::<Spec>::of(object).status(&status).transition(what, now).into()
}

/// A request for a new schedule.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: String,
    pub name: String,
    pub cron: String,
    pub zone: String,
    pub catch_up: CatchUp,
    pub command: Envelope,
}

/// The principal that a schedule of theirs runs as.
pub fn without_admin_roles(maker: &Principal) -> Principal {
    let mut run_as = maker.clone();
    run_as.roles.retain(|role| !ADMIN_ROLES.contains(&role.as_str()));
    run_as
}

/// The change that creates a schedule: its first time is the first after now.
pub fn create(new: Request, maker: &Principal, now: Timestamp) -> Result<(Change, Object)> {
    let Request { id, name, cron, zone, catch_up, command } = new;
    let run_as = without_admin_roles(maker);
    let spec = Spec { cron, zone, catch_up, command, run_as };
    let next = match plan(&spec.times()?, catch_up, now, now) {
        Plan::Wait(Some(next)) => next,
        _ => return Err(Error::invalid("cron", "matches no time")),
    };
    let (org, owner) = (&maker.org, &maker.subject);
    let status = Status { handled: Some(now), next: Some(next), last: None };
    let draft = Draft::new(Key::new(KIND, &id), org, owner, &name, now);
    let write = draft.phase(&Phase::Active).spec(&spec).status(&status).create("created");
    let object = write.object.clone();
    let take = |counter, limit| Take { counter, holder: object.key.to_string(), amount: 1, limit };
    let [count, name] = counters(&object);
    let change = Change {
        takes: vec![take(count, SCHEDULES_MAX), take(name, 1)],
        wakes: vec![Wake::for_object(&object, next)],
        ..Change::from(write)
    };
    Ok((change, object))
}

/// The change that deletes a schedule. A run that has begun may still end.
pub fn delete(object: &Object, now: Timestamp) -> (Change, Object) {
    let write = Draft::<Spec>::of(object).phase(&Phase::Deleted).delete("deleted", now);
    let gone = write.object.clone();
    let holder = gone.key.to_string();
    let release = |counter| Release { counter, holder: holder.clone() };
    let change = Change { releases: counters(&gone).map(release).into(), ..Change::from(write) };
    (change, gone)
}

/// Those of an organisation's schedules, and of the name; one without an organisation is its own.
fn counters(object: &Object) -> [String; 2] {
    let of =
        if object.org.is_empty() { format!("user/{}", object.owner) } else { object.org.clone() };
    [format!("schedules/{of}"), format!("name/{KIND}/{of}/{}", object.name)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn hourly(catch_up: CatchUp, handled: &str, now: &str) -> Plan {
        let times = (Cron::parse("0 * * * *").unwrap(), TimeZone::UTC);
        plan(&times, catch_up, at(handled), at(now))
    }

    #[test]
    fn a_time_is_waited_for_and_run_when_it_has_come() {
        let (nine, ten) = ("2026-11-18T09:00:00Z", "2026-11-18T10:00:00Z");
        for catch_up in [CatchUp::Skip, CatchUp::Once] {
            let early = hourly(catch_up, "2026-11-18T08:30:00Z", "2026-11-18T08:59:59.999Z");
            assert_eq!(early, Plan::Wait(Some(at(nine))));
            let run = Plan::Run { planned: at(nine), next: Some(at(ten)) };
            assert_eq!(hourly(catch_up, "2026-11-18T08:30:00Z", nine), run);
            let retried = hourly(catch_up, "2026-11-18T08:30:00Z", "2026-11-18T09:09:00Z");
            assert_eq!(retried, run, "the same time when the first attempt failed");
            assert_eq!(hourly(catch_up, nine, "2026-11-18T09:00:05Z"), Plan::Wait(Some(at(ten))));
        }
    }

    #[test]
    fn times_that_were_missed_are_skipped_or_caught_up_once() {
        let (handled, now) = ("2026-10-01T00:00:00Z", "2026-11-18T09:30:00Z");
        let (planned, next) = (at("2026-11-18T09:00:00Z"), Some(at("2026-11-18T10:00:00Z")));
        assert_eq!(hourly(CatchUp::Skip, handled, now), Plan::Skip { planned, next });
        assert_eq!(hourly(CatchUp::Once, handled, now), Plan::Run { planned, next });
    }

    #[test]
    fn the_latest_time_is_found_however_long_ago_it_was() {
        for (cron, latest) in [
            ("* * * * *", "2026-11-18T09:30:00Z"),
            ("0 3 * * *", "2026-11-18T03:00:00Z"),
            ("0 0 1 * *", "2026-11-01T00:00:00Z"),
            ("0 0 1 1 *", "2026-01-01T00:00:00Z"),
            ("0 0 29 2 *", "2024-02-29T00:00:00Z"),
        ] {
            let times = (Cron::parse(cron).unwrap(), TimeZone::UTC);
            let now = at("2026-11-18T09:30:00Z");
            match plan(&times, CatchUp::Once, at("2020-01-01T00:00:00Z"), now) {
                Plan::Run { planned, next } => {
                    assert_eq!(planned, at(latest), "{cron}");
                    assert!(next > Some(now), "{cron}");
                }
                other => panic!("{cron}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_brings_no_time_again() {
        let (handled, now) = ("2026-11-18T09:00:00Z", "2026-11-18T07:59:00Z");
        let waits = Plan::Wait(Some(at("2026-11-18T10:00:00Z")));
        assert_eq!(hourly(CatchUp::Once, handled, now), waits);
    }

    #[test]
    fn a_schedule_that_never_comes_or_has_no_zone_is_refused_by_field() {
        let maker = Principal {
            roles: ["admin-full", "member"].map(String::from).into(),
            ..Principal::default()
        };
        let new = |cron: &str, zone: &str| Request {
            id: "a".into(),
            name: "nightly".into(),
            cron: cron.into(),
            zone: zone.into(),
            catch_up: CatchUp::Skip,
            command: Envelope::new("widget.create", None, Json::default()),
        };
        let now = at("2026-11-18T09:30:00Z");
        let refused = |cron, zone| create(new(cron, zone), &maker, now).unwrap_err().to_string();
        assert!(refused("0 0 31 2 *", "UTC").starts_with("cron: matches no time"));
        assert!(refused("60 * * * *", "UTC").starts_with("cron: minute"));
        assert!(refused("@daily", "Mars/Olympus").starts_with("zone: `Mars/Olympus` is not"));
        let (_, object) = create(new("@daily", "Europe/Berlin"), &maker, now).unwrap();
        let spec: Spec = object.spec.parse().unwrap();
        assert_eq!(spec.run_as.roles, ["member".to_owned()].into(), "no admin roles");
    }
}
