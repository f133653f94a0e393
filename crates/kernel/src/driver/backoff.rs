//! Exponential backoff with jitter.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(300);

/// The wait before the next attempt: doubles with every failure, up to five minutes. `fraction`
/// (0 to 1) spreads it over the upper half, so that simultaneous failures do not retry together.
pub fn backoff(attempt: i32, fraction: f64) -> Duration {
    let doublings = u32::try_from(attempt.clamp(0, 16)).unwrap_or(0);
    let longest = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    longest.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_stays_spread_and_has_an_end() {
        assert_eq!(backoff(0, 1.0), FIRST);
        assert_eq!(backoff(0, 0.0), FIRST / 2);
        for attempt in 0..40 {
            let (low, high) = (backoff(attempt, 0.0), backoff(attempt, 1.0));
            assert_eq!(high, low * 2);
            assert!(high <= LONGEST && backoff(attempt + 1, 0.0) >= low);
        }
        assert_eq!(backoff(i32::MAX, 1.0), LONGEST);
        assert_eq!(backoff(-1, 1.0), FIRST);
    }
}
