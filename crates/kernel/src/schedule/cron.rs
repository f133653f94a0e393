//! Parses cron expressions as Kubernetes does (five fields, or `@daily` and the like) and finds the
//! next time, in a time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// The matching minutes, hours, days, months and weekdays, one bit for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Days and weekdays are both restricted, so matching one of them is enough.
    either: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// How far to search: leap days recur within eight years.
const YEARS_MAX: i16 = 8;
const EVERY_HOUR: u64 = (1 << 24) - 1;
/// Longer than clocks are set forward or back at once.
const TRANSITION_MAX: SignedDuration = SignedDuration::from_hours(4);

impl Cron {
    /// Returns what is wrong with an invalid schedule.
    pub fn parse(text: &str) -> Result<Cron, String> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!(
                "has {} fields; there are five: minute, hour, day, month, weekday",
                fields.len()
            ));
        };
        let open = |field: &str| matches!(field, "*" | "?");
        Ok(Cron {
            minutes: field("minute", minutes, 0, 59, &[])?,
            hours: field("hour", hours, 0, 23, &[])?,
            days: field("day", days, 1, 31, &[])?,
            months: field("month", months, 1, 12, &MONTHS)?,
            weekdays: field("weekday", weekdays, 0, 6, &WEEKDAYS)?,
            either: !open(days) && !open(weekdays),
        })
    }

    /// The first time after another one; none if the expression never matches.
    ///
    /// When clocks are set forward, a time that is skipped is moved by as much. When they are set
    /// back, a time of certain hours comes once, the first time; one of every hour comes again.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let now = zone.to_datetime(after);
        let (from, sure) =
            (now.checked_sub(TRANSITION_MAX).ok()?, now.checked_add(TRANSITION_MAX).ok()?);
        let mut found: Option<Timestamp> = None;
        // The order of the clock's times is not that of time itself while clocks are set back.
        for due in self.times_from(from) {
            if found.is_some() && due > sure {
                break;
            }
            let times = self.in_zone(due, zone)?;
            let next = times.into_iter().flatten().filter(|at| *at > after).min();
            found = found.into_iter().chain(next).min();
        }
        found
    }

    /// What the clock shows at the times that match, in order.
    fn times_from(&self, from: DateTime) -> impl Iterator<Item = DateTime> + '_ {
        let last_year = from.year().saturating_add(YEARS_MAX);
        let days = std::iter::successors(Some(from.date()), |day| day.tomorrow().ok());
        let days = days.take_while(move |day| day.year() <= last_year);
        days.filter(|day| self.fits(*day)).flat_map(move |day| {
            let begin = if day == from.date() { from.time() } else { Time::midnight() };
            self.times_of_day(begin).map(move |time| day.to_datetime(time))
        })
    }

    /// When the clock shows this; twice while it is set back.
    fn in_zone(&self, due: DateTime, zone: &TimeZone) -> Option<[Option<Timestamp>; 2]> {
        let every_hour = self.hours == EVERY_HOUR;
        match zone.to_ambiguous_timestamp(due).offset() {
            AmbiguousOffset::Fold { before, after } if every_hour => {
                Some([before.to_timestamp(due).ok(), after.to_timestamp(due).ok()])
            }
            _ => Some([Some(due.to_zoned(zone.clone()).ok()?.timestamp()), None]),
        }
    }

    fn fits(&self, day: Date) -> bool {
        let has = |bits: u64, number: i8| bits >> number & 1 == 1;
        let weekday = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        let date = has(self.days, day.day());
        let right = if self.either { weekday || date } else { weekday && date };
        right && has(self.months, day.month())
    }

    fn times_of_day(&self, begin: Time) -> impl Iterator<Item = Time> + '_ {
        (begin.hour()..24).filter(|hour| self.hours >> hour & 1 == 1).flat_map(move |hour| {
            let first = if hour == begin.hour() { begin.minute() } else { 0 };
            let minutes = (first..60).filter(|minute| self.minutes >> minute & 1 == 1);
            minutes.filter_map(move |minute| Time::new(hour, minute, 0, 0).ok())
        })
    }
}

/// Lists, ranges, steps and names: `*/15`, `1-5`, `mon,fri`, `10-20/2`.
fn field(what: &str, text: &str, min: u32, max: u32, names: &[&str]) -> Result<u64, String> {
    let wrong = |part: &str| format!("{what} {part:?} is not a number from {min} to {max}");
    let number = |part: &str| {
        let small = part.to_lowercase();
        let named = names.iter().position(|name| *name == small);
        // Months start at one.
        let named = named.and_then(|i| u32::try_from(i).ok()).map(|i| i + min);
        let number = named.or_else(|| part.parse().ok());
        number.filter(|n| (min..=max).contains(n)).ok_or_else(|| wrong(part))
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = step.parse::<u32>().ok().filter(|step| *step > 0);
                (range, Some(step.ok_or_else(|| wrong(part))?))
            }
            None => (part, None),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*" | "?", _) => (min, max),
            (_, Some((first, last))) => (number(first)?, number(last)?),
            // `5/10` means 5 and every tenth after it.
            (one, None) if step.is_some() => (number(one)?, max),
            (one, None) => (number(one)?, number(one)?),
        };
        if first > last {
            return Err(format!("{what} {part:?} ends before it begins"));
        }
        let all = (first..=last).step_by(step.unwrap_or(1) as usize);
        bits |= all.fold(0, |bits, n| bits | 1 << n);
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_is_that_of_cron() {
        // 2026-11-16 is a Monday.
        for (schedule, next) in [
            ("*/15 * * * *", "2026-11-16T07:15:00Z"),
            ("0 * * * *", "2026-11-16T08:00:00Z"),
            ("7 7 * * *", "2026-11-17T07:07:00Z"),
            ("8 7 * * *", "2026-11-16T07:08:00Z"),
            ("@daily", "2026-11-17T00:00:00Z"),
            ("@weekly", "2026-11-22T00:00:00Z"),
            ("30 2 * * MON-FRI", "2026-11-17T02:30:00Z"),
            ("0 0 1 * *", "2026-12-01T00:00:00Z"),
            ("0 0 1 jan ?", "2027-01-01T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            ("0 12 13 * 5", "2026-11-20T12:00:00Z"),
            ("0 12 * * sun", "2026-11-22T12:00:00Z"),
            ("0 12 */2 * 5", "2026-11-17T12:00:00Z"),
            ("5/20 8 * * *", "2026-11-16T08:05:00Z"),
            ("0 9-17/4 * * *", "2026-11-16T09:00:00Z"),
        ] {
            let now: Timestamp = "2026-11-16T07:07:30Z".parse().unwrap();
            let due = Cron::parse(schedule).unwrap().next(now, &TimeZone::UTC);
            assert_eq!(due, Some(next.parse().unwrap()), "{schedule}");
        }
        let never = Cron::parse("0 0 31 2 *").unwrap();
        assert_eq!(never.next("2026-11-16T07:07:30Z".parse().unwrap(), &TimeZone::UTC), None);
    }

    /// The times after `from`, as they are shown in Berlin.
    fn in_berlin(cron: &str, from: &str, count: usize) -> Vec<String> {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let cron = Cron::parse(cron).unwrap();
        let mut at: Timestamp = from.parse().unwrap();
        let mut times = Vec::new();
        for _ in 0..count {
            let next = cron.next(at, &zone).unwrap();
            assert!(next > at, "{next} is not after {at}");
            at = next;
            times.push(at.to_zoned(zone.clone()).strftime("%d %H:%M%:z").to_string());
        }
        times
    }

    #[test]
    fn a_time_that_the_clock_skips_is_moved_and_comes_once() {
        // On 2027-03-28 the hour from 02:00 to 03:00 does not exist.
        let from = "2027-03-27T12:00:00+01:00";
        let daily = ["28 03:30+02:00", "29 02:30+02:00"];
        assert_eq!(in_berlin("30 2 * * *", from, 2), daily);
        let from = "2027-03-28T01:30:00+01:00";
        let hourly = ["28 03:00+02:00", "28 04:00+02:00"];
        assert_eq!(in_berlin("0 * * * *", from, 2), hourly);
    }

    #[test]
    fn a_time_that_the_clock_shows_twice_comes_once_unless_it_is_of_every_hour() {
        // On 2026-10-25 the hour from 02:00 to 03:00 comes twice.
        let from = "2026-10-24T12:00:00+02:00";
        assert_eq!(in_berlin("30 2 * * *", from, 2), ["25 02:30+02:00", "26 02:30+01:00"]);
        let from = "2026-10-25T01:30:00+02:00";
        let half_hourly = [
            "25 02:00+02:00",
            "25 02:30+02:00",
            "25 02:00+01:00",
            "25 02:30+01:00",
            "25 03:00+01:00",
        ];
        assert_eq!(in_berlin("*/30 * * * *", from, 5), half_hourly);
        // From within the second hour.
        assert_eq!(in_berlin("30 2 * * *", "2026-10-25T02:10:00+01:00", 1), ["26 02:30+01:00"]);
    }

    #[test]
    fn an_invalid_schedule_names_the_wrong_part() {
        for (bad, part) in [
            ("* * * *", "4 fields"),
            ("60 * * * *", "minute \"60\""),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day"),
            ("* * * x *", "month \"x\""),
            ("*/0 * * * *", "minute"),
            ("9-3 * * * *", "ends before"),
            ("0 0 * * 7", "weekday \"7\""),
            ("", "0 fields"),
        ] {
            let said = Cron::parse(bad).unwrap_err();
            assert!(said.contains(part), "{bad}: {said}");
        }
    }
}
