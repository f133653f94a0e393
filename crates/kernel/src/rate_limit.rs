//! A rate limiter: a token bucket for each key. Pure; the time is passed in. In memory, so each
//! replica counts for itself.

use std::collections::HashMap;
use std::hash::Hash;

use crate::Timestamp;

/// The most keys that have a bucket of their own, of about 40 bytes. More than this many active keys
/// share one bucket.
const BUCKETS_MAX: usize = 20_000;

/// Full buckets are removed at most this often.
const SWEEP_MS: i64 = 1000;

#[derive(Debug)]
pub(crate) struct RateLimiter<K> {
    per_s: f64,
    burst: f64,
    buckets: HashMap<K, Bucket>,
    shared: Bucket,
    buckets_max: usize,
    swept: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    fn tokens(self, now: Timestamp, per_s: f64, burst: f64) -> f64 {
        // A clock that jumps back adds nothing and removes nothing.
        (self.tokens + self.at.until(now).as_secs_f64() * per_s).min(burst)
    }

    /// Takes a token, or returns the number of seconds until there is one.
    fn take(&mut self, now: Timestamp, per_s: f64, burst: f64) -> Result<(), u64> {
        let tokens = self.tokens(now, per_s, burst);
        self.at = now;
        self.tokens = tokens;
        if tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err((((1.0 - tokens) / per_s).ceil() as u64).max(1))
    }
}

impl<K: Eq + Hash> RateLimiter<K> {
    /// Allows `burst` at once, and `per_s` in the long run.
    pub(crate) fn new(per_s: f64, burst: u32) -> RateLimiter<K> {
        let (burst, start) = (f64::from(burst), Timestamp(0));
        RateLimiter {
            per_s,
            burst,
            buckets: HashMap::new(),
            shared: Bucket { tokens: burst, at: start },
            buckets_max: BUCKETS_MAX,
            swept: start,
        }
    }

    /// Counts a request of `who`. The error is the number of seconds to wait.
    pub(crate) fn take(&mut self, who: K, now: Timestamp) -> Result<(), u64> {
        let (per_s, burst) = (self.per_s, self.burst);
        if let Some(bucket) = self.buckets.get_mut(&who) {
            return bucket.take(now, per_s, burst);
        }
        if self.buckets.len() >= self.buckets_max {
            self.sweep(now);
        }
        if self.buckets.len() >= self.buckets_max {
            return self.shared.take(now, per_s, burst);
        }
        let full = Bucket { tokens: burst, at: now };
        self.buckets.entry(who).or_insert(full).take(now, per_s, burst)
    }

    /// Takes back a request of `who`.
    pub(crate) fn give_back(&mut self, who: &K) {
        let burst = self.burst;
        let bucket = self.buckets.get_mut(who).unwrap_or(&mut self.shared);
        bucket.tokens = (bucket.tokens + 1.0).min(burst);
    }

    /// Removes full buckets, which are equivalent to missing ones.
    fn sweep(&mut self, now: Timestamp) {
        if self.swept.until(now).as_millis() < SWEEP_MS as u128 {
            return;
        }
        self.swept = now;
        let (per_s, burst) = (self.per_s, self.burst);
        self.buckets.retain(|_, bucket| bucket.tokens(now, per_s, burst) < burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_000_000);

    fn after(ms: i64) -> Timestamp {
        Timestamp(START.0 + ms)
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate_holds() {
        let mut limiter = RateLimiter::new(10.0, 3);
        let taken = (0..5).filter(|_| limiter.take(1, START).is_ok()).count();
        assert_eq!(taken, 3);
        assert_eq!(limiter.take(1, START), Err(1));
        assert_eq!(limiter.take(1, after(100)), Ok(()));
        assert!(limiter.take(1, after(100)).is_err());
        let in_ten_seconds =
            (0..10_000).filter(|ms| limiter.take(1, after(1000 + ms)).is_ok()).count();
        assert!((99..=103).contains(&in_ten_seconds), "{in_ten_seconds}");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more() {
        let mut limiter = RateLimiter::new(1.0, 2);
        for _ in 0..10 {
            assert_eq!(limiter.take(1, START), Ok(()));
            limiter.give_back(&1);
            limiter.give_back(&1);
        }
        assert_eq!((0..5).filter(|_| limiter.take(1, START).is_ok()).count(), 2);
    }

    #[test]
    fn one_key_does_not_use_up_the_rate_of_another() {
        let mut limiter = RateLimiter::new(1.0, 1);
        assert_eq!(limiter.take(1, START), Ok(()));
        assert!(limiter.take(1, START).is_err());
        assert_eq!(limiter.take(2, START), Ok(()));
    }

    #[test]
    fn there_are_never_more_buckets_than_allowed_and_full_ones_are_removed() {
        let mut limiter = RateLimiter::new(1.0, 2);
        limiter.buckets_max = 10;
        for who in 0..100 {
            let _ = limiter.take(who, START);
            assert!(limiter.buckets.len() <= 10);
        }
        assert!(limiter.take(100, START).is_err(), "the shared bucket is empty by now");
        assert_eq!(limiter.take(100, after(5000)), Ok(()));
        assert_eq!(limiter.buckets.len(), 1, "the ten full buckets were removed");
    }

    #[test]
    fn a_clock_that_jumps_back_adds_no_tokens() {
        let mut limiter = RateLimiter::new(1.0, 1);
        assert_eq!(limiter.take(1, START), Ok(()));
        assert!(limiter.take(1, after(-60_000)).is_err());
        assert!(limiter.take(1, after(-59_500)).is_err());
    }
}
