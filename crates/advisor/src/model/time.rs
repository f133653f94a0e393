//! Times on the wire: read in any ISO 8601 form with an offset, written in the one form that the
//! existing service writes; and the time range of a bulk job.

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::Serialize;
use serde_json::Value;

use super::fields::{Fields, Invalid, boolean, text};

/// Why a time range is not accepted. The texts are those of the existing service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRange {
    #[error("Start time should be before end time")]
    StartAfterEnd,
    #[error("Invalid date format. Must follow ISO 8601 format (YYYY-MM-DDTHH:mm:ss.sssZ)")]
    Format,
    #[error("Exception occurred while validating the time range")]
    OnlyOne,
}

/// The time range of a request, as it was sent: the answer repeats it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TimeRange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Whether the recommendation, too, uses only data up to the end. The existing service bounds
    /// the discovery alone and recommends from the newest data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_recommendations: Option<bool>,
}

/// A start and an end, which may be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl TimeRange {
    pub(super) fn read(path: &str, value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new(path, value)?;
        let range = Self {
            start: fields.read("start", text)?,
            end: fields.read("end", text)?,
            bound_recommendations: fields.read("bound_recommendations", boolean)?,
        };
        fields.finish()?;
        Ok(range)
    }

    /// The window that is meant, or none if neither end was sent.
    pub fn window(&self) -> Result<Option<Window>, InvalidRange> {
        let time = |text: &Option<String>| text.as_deref().map(parse).transpose();
        let times = (time(&self.start), time(&self.end));
        match times {
            (Err(_), _) | (_, Err(_)) => Err(InvalidRange::Format),
            (Ok(None), Ok(None)) => Ok(None),
            (Ok(Some(start)), Ok(Some(end))) if start <= end => Ok(Some(Window { start, end })),
            (Ok(Some(_)), Ok(Some(_))) => Err(InvalidRange::StartAfterEnd),
            _ => Err(InvalidRange::OnlyOne),
        }
    }
}

/// Reads a date and a time with an offset, with or without a fraction of a second.
pub fn parse(text: &str) -> Result<Timestamp, InvalidRange> {
    // The date and the time must be there and apart; jiff accepts more forms than ISO's extended one.
    let shape = text.get(10..11).is_some_and(|t| t.eq_ignore_ascii_case("t")) && text.is_ascii();
    if !shape || text.contains('[') {
        return Err(InvalidRange::Format);
    }
    text.parse().map_err(|_| InvalidRange::Format)
}

/// Writes a time as `2026-11-14T00:00:00.000Z`. What is below a millisecond is cut off.
pub fn format(time: Timestamp) -> String {
    let time = Offset::UTC.to_datetime(time);
    let (date, clock) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        date.month(),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        clock.millisecond()
    )
}

/// For `#[serde(with = "time::wire")]`.
pub mod wire {
    use jiff::Timestamp;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format(*time))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        super::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: Option<&str>, end: Option<&str>) -> Result<Option<Window>, InvalidRange> {
        let text = |text: Option<&str>| text.map(str::to_owned);
        TimeRange { start: text(start), end: text(end), bound_recommendations: None }.window()
    }

    #[test]
    fn both_grammars_are_read_and_one_is_written() {
        for (text, written) in [
            ("2025-01-01T12:00:00Z", "2025-01-01T12:00:00.000Z"),
            ("2025-01-01T12:00:00.5Z", "2025-01-01T12:00:00.500Z"),
            ("2025-01-01T12:00:00.123456789Z", "2025-01-01T12:00:00.123Z"),
            ("2025-01-01T12:00:00.000+02:00", "2025-01-01T10:00:00.000Z"),
            ("2025-01-01T12:00Z", "2025-01-01T12:00:00.000Z"),
            ("2024-02-29T23:59:59.999-05:30", "2024-03-01T05:29:59.999Z"),
            ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(format(parse(text).unwrap_or_else(|_| panic!("{text}"))), written, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_date_with_a_time_and_an_offset_is_rejected() {
        for text in [
            "",
            "yesterday",
            "2025-01-01",
            "2025-01-01T12:00:00",
            "2025-01-01 12:00:00Z",
            "20250101T120000Z",
            "2025-02-30T12:00:00Z",
            "2025-01-01T25:00:00Z",
            "1735732800",
            "2025-01-01T12:00:00+02:00[Europe/Paris]",
            "２０２５-01-01T12:00:00Z",
        ] {
            assert_eq!(parse(text), Err(InvalidRange::Format), "{text}");
        }
    }

    #[test]
    fn a_range_has_both_ends_in_order_or_none() {
        let (early, late) = (Some("2025-01-01T00:00:00Z"), Some("2025-01-02T00:00:00.000Z"));
        assert_eq!(range(None, None), Ok(None));
        assert!(range(early, late).unwrap().is_some() && range(late, late).unwrap().is_some());
        assert_eq!(range(late, early), Err(InvalidRange::StartAfterEnd));
        assert_eq!(range(early, None), Err(InvalidRange::OnlyOne));
        assert_eq!(range(None, early), Err(InvalidRange::OnlyOne));
        assert_eq!(range(Some("yesterday"), Some("today")), Err(InvalidRange::Format));
        assert_eq!(range(Some("yesterday"), None), Err(InvalidRange::Format));
    }

    proptest! {
        #[test]
        fn a_written_time_is_read_back(ms in -62_000_000_000_000_i64..253_000_000_000_000) {
            let time = Timestamp::from_millisecond(ms).unwrap();
            prop_assert_eq!(parse(&format(time)), Ok(time));
        }
    }
}
