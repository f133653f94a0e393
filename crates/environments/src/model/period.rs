//! Lengths of time as people write them: `90s`, `30m`, `8h`, `2d`, `1w`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::problem::Problems;

/// A length of time in whole seconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Period {
    seconds: u64,
}

const UNITS: [(char, u64); 5] =
    [('w', 7 * 24 * 3600), ('d', 24 * 3600), ('h', 3600), ('m', 60), ('s', 1)];
/// Ten years: no template means more, and sums of two still fit a timestamp.
const SECONDS_MAX: u64 = 3650 * 24 * 3600;

impl Period {
    pub const fn seconds(seconds: u64) -> Period {
        Period { seconds }
    }

    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Reads one number with its unit, or several: `1h30m`.
    pub fn parse(text: &str) -> Option<Period> {
        let mut seconds: u64 = 0;
        let mut rest = text.trim();
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            let number: u64 = rest[..digits].parse().ok()?;
            let unit = rest[digits..].chars().next()?;
            let (_, of_unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
            seconds = seconds.checked_add(number.checked_mul(*of_unit)?)?;
            rest = &rest[digits + 1..];
        }
        (seconds <= SECONDS_MAX).then_some(Period { seconds })
    }

    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Period> {
        let found = value.as_str().and_then(Period::parse);
        if found.is_none() {
            problems.add(
                path,
                format!("`{value}` is not a length of time"),
                "write it as `30m`, `8h` or `2d`",
            );
        }
        found
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seconds == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.seconds;
        for (name, of_unit) in UNITS {
            let number = rest / of_unit;
            if number > 0 {
                write!(f, "{number}{name}")?;
            }
            rest %= of_unit;
        }
        Ok(())
    }
}

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Period, String> {
        Period::parse(&text).ok_or_else(|| format!("`{text}` is not a length of time"))
    }
}

impl From<Period> for String {
    fn from(period: Period) -> String {
        period.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_read_as_it_is_written() {
        for text in ["90s", "8h", "1d2h3m4s", "2w"] {
            let period = Period::parse(text).unwrap();
            assert_eq!(Period::parse(&period.to_string()), Some(period), "{text}");
        }
        assert_eq!(Period::parse("90s").unwrap().to_string(), "1m30s");
        for wrong in ["", "8", "h", "8 h", "-1h", "99999999999999999999h", "20y", "4000d", "8hh"] {
            assert_eq!(Period::parse(wrong), None, "{wrong}");
        }
    }
}
