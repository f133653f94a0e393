//! The parameters of `generateRecommendations` and `updateRecommendations`.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::checked::name;
use super::fields::{Fields, Invalid};
use super::time;

/// Between the start and the end of a window.
const DAYS_MAX: i64 = 15;
/// Of a text that is repeated in a message.
const SHOWN_CHARS_MAX: usize = 100;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A request for one recommendation. The window always begins 15 days before its end: the start is
/// checked, and has no other effect, as in the existing service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct RecommendRequest {
    pub end_ms: Option<i64>,
    pub job: Option<String>,
}

impl TryFrom<Value> for RecommendRequest {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new("", value)?;
        let end = fields.read("interval_end_time", instant)?;
        let start = fields.read("interval_start_time", instant)?;
        let job = fields.read("job_id", name)?;
        fields.finish()?;
        let ms = |time: Timestamp| time.as_millisecond();
        if let (Some(start), Some(end)) = (start, end) {
            if start >= end {
                return Err(Invalid::new("", "The Start time should precede the End time!"));
            }
            if ms(end) - ms(start) > DAYS_MAX * DAY_MS {
                let problem = "The gap between the interval_start_time and interval_end_time must \
                               be within a maximum of 15 days!";
                return Err(Invalid::new("", problem));
            }
        }
        Ok(Self { end_ms: end.map(ms), job })
    }
}

/// In the words of the existing service.
fn instant(path: &str, value: Value) -> Result<Timestamp, Invalid> {
    let text = name(path, value)?;
    timestamp(&text)
}

/// A time of a query.
pub fn timestamp(text: &str) -> Result<Timestamp, Invalid> {
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let problem = || format!("Given timestamp - \" {shown} \" is not a valid timestamp format");
    time::parse(text.trim()).map_err(|_| Invalid::new("", problem()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<RecommendRequest, String> {
        RecommendRequest::try_from(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_window_is_in_order_and_not_longer_than_what_is_read() {
        let (start, end) = ("2026-11-10T00:00:00.000Z", "2026-11-14T00:00:00Z");
        assert_eq!(read(json!({})), Ok(RecommendRequest::default()));
        let both = json!({ "interval_start_time": start, "interval_end_time": end, "job_id": "j" });
        let found = read(both).unwrap();
        assert_eq!((found.end_ms, found.job.as_deref()), (Some(1_794_614_400_000), Some("j")));
        let turned = json!({ "interval_start_time": end, "interval_end_time": start });
        assert_eq!(read(turned).unwrap_err(), "The Start time should precede the End time!");
        let long =
            json!({ "interval_start_time": "2026-10-01T00:00:00Z", "interval_end_time": end });
        assert!(read(long).unwrap_err().contains("a maximum of 15 days"));
        let bad = read(json!({ "interval_end_time": "xx" })).unwrap_err();
        assert_eq!(bad, "Given timestamp - \" xx \" is not a valid timestamp format");
        assert!(read(json!({ "interval_end_time": 7 })).is_err());
        assert!(read(json!({ "experiment": "e" })).unwrap_err().contains("`experiment`"));
    }
}
