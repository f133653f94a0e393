//! What a pump does after a failure: try again, or wait for a person.

use std::time::Duration;

use kernel::{Backoff, Timestamp};

/// Of brokers: they are few and near, and a successor waits for the lock of its predecessor.
pub const BROKER: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };
/// A sink that fails for less long is still called running: brokers restart.
const FAILING_AFTER_MS: i64 = 5_000;

/// How a sink fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    pub count: u32,
    pub since: Option<Timestamp>,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Retry(Duration),
    Park,
}

impl Failures {
    /// Counts a failure, and decides what comes next. Webhooks are parked when they have failed for
    /// `park_after`.
    pub fn add(
        &mut self,
        now: Timestamp,
        backoff: Backoff,
        park_after: Option<Duration>,
        fraction: f64,
    ) -> Next {
        let since = *self.since.get_or_insert(now);
        let earlier = self.count;
        self.count = self.count.saturating_add(1);
        let park_after =
            park_after.map(|limit| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        match park_after {
            Some(limit) if now.0.saturating_sub(since.0) >= limit => Next::Park,
            _ => Next::Retry(backoff.delay(earlier, fraction)),
        }
    }

    /// A wait that respects what the other side asks for, within reason.
    pub fn wait(wait: Duration, asked: Option<Duration>, backoff: Backoff) -> Duration {
        wait.max(asked.unwrap_or_default().min(backoff.longest))
    }

    /// Whether people should know.
    pub fn is_lasting(&self, now: Timestamp) -> bool {
        self.since.is_some_and(|since| now.0.saturating_sub(since.0) >= FAILING_AFTER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::Webhooks;

    #[test]
    fn a_webhook_is_tried_ever_more_rarely_for_a_day_and_then_parked() {
        let (mut failures, mut now, mut tries) = (Failures::default(), Timestamp(0), 0);
        let (day, backoff) = (Duration::from_secs(24 * 3600), Webhooks::default().backoff());
        let parked = loop {
            match failures.add(now, backoff, Some(day), 1.0) {
                Next::Retry(wait) => {
                    assert!(wait <= Duration::from_secs(3600));
                    now = now.plus(wait);
                    tries += 1;
                }
                Next::Park => break now,
            }
        };
        assert!(parked.0 >= 24 * 3_600_000 && parked.0 <= 25 * 3_600_000, "{parked}");
        assert!((20..=40).contains(&tries), "{tries}");
    }

    #[test]
    fn a_receiver_that_asks_for_time_gets_it_but_not_without_end() {
        let (second, backoff) = (Duration::from_secs(1), Webhooks::default().backoff());
        for (asked, expected) in [(None, 1), (Some(0), 1), (Some(7), 7), (Some(86_400), 3600)] {
            let wait = Failures::wait(second, asked.map(Duration::from_secs), backoff);
            assert_eq!(wait.as_secs(), expected, "{asked:?}");
        }
    }

    #[test]
    fn a_broker_is_tried_without_end_and_soon() {
        let mut failures = Failures::default();
        for n in 0..10_000 {
            let now = Timestamp(n * 1000);
            match failures.add(now, BROKER, None, 1.0) {
                Next::Retry(wait) => assert!(wait <= Duration::from_secs(2)),
                Next::Park => panic!("parked after {n}"),
            }
            assert_eq!(failures.is_lasting(now), n >= 5);
        }
    }
}
