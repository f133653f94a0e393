//! Exponential backoff with jitter.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    /// The delay after one failure and `earlier` failures before it: doubles with each. `fraction`
    /// (0 to 1) spreads it over the upper half, so that simultaneous failures do not retry together.
    pub fn delay(self, earlier: u32, fraction: f64) -> Duration {
        self.without_jitter(earlier).mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)
    }

    /// The longest delay that [`Backoff::delay`] returns.
    pub fn without_jitter(self, earlier: u32) -> Duration {
        self.first.saturating_mul(1 << earlier.min(30)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_stays_spread_and_has_an_end() {
        let backoff =
            Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(300) };
        assert_eq!(backoff.delay(0, 1.0), backoff.first);
        assert_eq!(backoff.delay(0, 0.0), backoff.first / 2);
        for earlier in 0..40 {
            let (low, high) = (backoff.delay(earlier, 0.0), backoff.delay(earlier, 1.0));
            assert_eq!(high, low * 2);
            assert!(high <= backoff.longest && backoff.delay(earlier + 1, 0.0) >= low);
        }
        assert_eq!(backoff.delay(u32::MAX, 1.0), backoff.longest);
    }
}
