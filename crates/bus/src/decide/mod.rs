//! Pure decisions of the relay and the intake.

mod filter;
pub mod pace;

pub use filter::wants;

use kernel::{Error, Result, Timestamp};

/// How far the clock of a sender may be ahead of ours.
const AHEAD_MAX_MS: i64 = 5 * 60 * 1000;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Refuses a command that is older than the records of commands: whether it was carried out before is
/// no longer known.
pub fn check_age(issued_at: Timestamp, now: Timestamp, commands_days: u64) -> Result<()> {
    let days = i64::try_from(commands_days).unwrap_or(i64::MAX);
    // A command may say that it is younger than its record is.
    let kept_ms = days.saturating_mul(DAY_MS).saturating_sub(AHEAD_MAX_MS);
    if issued_at.0 < now.0.saturating_sub(kept_ms) {
        let why = format!("is more than {commands_days} days ago; send it again with a new id");
        return Err(Error::invalid("issued_at", why));
    }
    if issued_at.0 > now.0.saturating_add(AHEAD_MAX_MS) {
        return Err(Error::invalid("issued_at", "is in the future: check the sender's clock"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_from_before_the_records_or_from_the_future_is_refused() {
        let now = Timestamp(100 * DAY_MS);
        let check = |ago_ms: i64| check_age(Timestamp(now.0 - ago_ms), now, 7);
        for good in [0, 7 * DAY_MS - AHEAD_MAX_MS, -AHEAD_MAX_MS] {
            assert!(check(good).is_ok(), "{good}");
        }
        let old = check(7 * DAY_MS - AHEAD_MAX_MS + 1).unwrap_err().to_string();
        assert_eq!(old, "issued_at: is more than 7 days ago; send it again with a new id");
        let early = check(-AHEAD_MAX_MS - 1).unwrap_err().to_string();
        assert!(early.starts_with("issued_at: is in the future"), "{early}");
        assert!(check_age(Timestamp(0), now, u64::MAX).is_ok());
    }
}
