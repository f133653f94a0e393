//! A rate limiter per key (token bucket). In memory: each replica counts for itself.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::Timestamp;

/// The most keys; more than are active at once unless they are made up.
const KEYS_MAX: usize = 4_096;

/// Allows `burst` at once, and one more each `every_ms`.
pub struct Limiter {
    burst: i64,
    every_ms: i64,
    /// For each key, when its bucket will be full again.
    full_at: Mutex<HashMap<String, i64>>,
}

impl Limiter {
    pub fn new(burst: i64, every_ms: i64) -> Limiter {
        Limiter { burst, every_ms, full_at: Mutex::default() }
    }

    pub fn allow(&self, key: &str, now: Timestamp) -> bool {
        let now = now.millis();
        let mut full_at = self.full_at.lock();
        if full_at.len() >= KEYS_MAX && !full_at.contains_key(key) {
            full_at.retain(|_, at| *at > now);
            if full_at.len() >= KEYS_MAX {
                return false;
            }
        }
        let at = full_at.entry(key.to_owned()).or_insert(now);
        // Never further ahead than an empty bucket: a clock set back blocks nobody for long.
        *at = (*at).clamp(now, now + self.burst * self.every_ms);
        let allowed = *at + self.every_ms <= now + self.burst * self.every_ms;
        if allowed {
            *at += self.every_ms;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_at_a_time_for_each_key() {
        let limiter = Limiter::new(3, 1_000);
        let allow = |key: &str, ms: i64| limiter.allow(key, Timestamp(1_000_000 + ms));
        assert!((0..3).all(|_| allow("a", 0)));
        assert!(!allow("a", 0) && !allow("a", 999) && allow("b", 0));
        assert!(allow("a", 1_000) && !allow("a", 1_000));
        assert!((0..3).all(|_| allow("a", 9_000)) && !allow("a", 9_000));
        assert!(!allow("a", -500_000) && allow("a", -499_000), "after the clock was set back");
    }

    #[test]
    fn made_up_keys_do_not_fill_the_memory() {
        let limiter = Limiter::new(1, 1_000);
        let allowed = (0..10_000).filter(|n| limiter.allow(&n.to_string(), Timestamp(5))).count();
        assert_eq!(allowed, KEYS_MAX);
        assert!(limiter.allow("late", Timestamp(1_005)));
        assert!(limiter.full_at.lock().len() <= KEYS_MAX);
    }
}
