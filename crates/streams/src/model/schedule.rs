//! Parses schedules as Kubernetes does (five fields, or `@daily` and the like) and finds the next
//! run.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

/// The matching minutes, hours, days, months and weekdays, one bit for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
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

impl Schedule {
    /// Returns what is wrong with an invalid schedule.
    pub fn parse(text: &str) -> Result<Schedule, String> {
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
        Ok(Schedule {
            minutes: field("minute", minutes, 0, 59, &[])?,
            hours: field("hour", hours, 0, 23, &[])?,
            days: field("day", days, 1, 31, &[])?,
            months: field("month", months, 1, 12, &MONTHS)?,
            weekdays: field("weekday", weekdays, 0, 6, &WEEKDAYS)?,
            either: !open(days) && !open(weekdays),
        })
    }

    /// The first run after a time; none if the schedule never matches.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let from = zone.to_datetime(after).checked_add(1.minute()).ok()?;
        let from = from.with().second(0).subsec_nanosecond(0).build().ok()?;
        let mut day = from.date();
        while day.year() <= from.year().saturating_add(YEARS_MAX) {
            if self.fits(day) {
                let begin = if day == from.date() { from.time() } else { Time::midnight() };
                if let Some(time) = self.time_from(begin) {
                    let due: DateTime = day.to_datetime(time);
                    return Some(due.to_zoned(zone.clone()).ok()?.timestamp());
                }
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    fn fits(&self, day: Date) -> bool {
        let has = |bits: u64, number: i8| bits >> number & 1 == 1;
        let weekday = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        let date = has(self.days, day.day());
        let right = if self.either { weekday || date } else { weekday && date };
        right && has(self.months, day.month())
    }

    fn time_from(&self, begin: Time) -> Option<Time> {
        for hour in (begin.hour()..24).filter(|hour| self.hours >> hour & 1 == 1) {
            let first = if hour == begin.hour() { begin.minute() } else { 0 };
            if let Some(minute) = (first..60).find(|minute| self.minutes >> minute & 1 == 1) {
                return Time::new(hour, minute, 0, 0).ok();
            }
        }
        None
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
            let due = Schedule::parse(schedule).unwrap().next(now, &TimeZone::UTC);
            assert_eq!(due, Some(next.parse().unwrap()), "{schedule}");
        }
        let never = Schedule::parse("0 0 31 2 *").unwrap();
        assert_eq!(never.next("2026-11-16T07:07:30Z".parse().unwrap(), &TimeZone::UTC), None);
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
            let said = Schedule::parse(bad).unwrap_err();
            assert!(said.contains(part), "{bad}: {said}");
        }
    }
}
