//! What a pump does after a failure: try again, or wait for a person.

use std::time::Duration;

use kernel::Backoff;
use tokio::time::Instant;

/// Of brokers: they are few and near, and a successor waits for the lock of its predecessor.
pub const BROKER: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };
/// A sink that fails for less long is still called running: brokers restart.
const FAILING_AFTER: Duration = Duration::from_secs(5);

/// How a sink fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    pub count: u32,
    /// For how long it has been tried in vain. Not the time in which nobody tried.
    pub tried: Duration,
    last: Option<Instant>,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Retry(Duration),
    Park,
}

impl Failures {
    /// Goes on with a sink that was tried for so long before a restart.
    pub fn after(tried: Duration) -> Failures {
        Failures { tried, ..Failures::default() }
    }

    /// Counts a failure, and decides what comes next. Webhooks are parked when they have failed for
    /// `park_after`.
    pub fn add(
        &mut self,
        now: Instant,
        backoff: Backoff,
        park_after: Option<Duration>,
        fraction: f64,
    ) -> Next {
        self.tried += self.last.replace(now).map_or(Duration::ZERO, |last| now - last);
        let earlier = self.count;
        self.count = self.count.saturating_add(1);
        match park_after {
            Some(limit) if self.tried >= limit => Next::Park,
            _ => Next::Retry(backoff.delay(earlier, fraction)),
        }
    }

    /// A wait that respects what the other side asks for, within reason.
    pub fn wait(wait: Duration, asked: Option<Duration>, backoff: Backoff) -> Duration {
        wait.max(asked.unwrap_or_default().min(backoff.longest))
    }

    /// Whether people should know.
    pub fn is_lasting(&self) -> bool {
        self.tried >= FAILING_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::Webhooks;

    #[test]
    fn a_webhook_is_tried_ever_more_rarely_for_a_day_and_then_parked() {
        let (mut failures, begun, mut tries) = (Failures::default(), Instant::now(), 0);
        let mut now = begun;
        let (day, backoff) = (Duration::from_secs(24 * 3600), Webhooks::default().backoff());
        let parked = loop {
            match failures.add(now, backoff, Some(day), 1.0) {
                Next::Retry(wait) => {
                    assert!(wait <= Duration::from_secs(3600));
                    now += wait;
                    tries += 1;
                }
                Next::Park => break now - begun,
            }
        };
        assert!((day..=day + Duration::from_secs(3600)).contains(&parked), "{parked:?}");
        assert!((20..=40).contains(&tries), "{tries}");
    }

    #[test]
    fn only_the_time_counts_in_which_it_was_tried() {
        let (backoff, hour) = (Webhooks::default().backoff(), Duration::from_secs(3600));
        let add = |failures: &mut Failures, now| failures.add(now, backoff, Some(2 * hour), 1.0);
        let mut failures = Failures::default();
        let now = Instant::now();
        assert_ne!(add(&mut failures, now), Next::Park);
        assert_ne!(add(&mut failures, now + hour), Next::Park);
        // The server was away.
        let mut failures = Failures::after(failures.tried);
        assert_ne!(add(&mut failures, now + 9 * hour), Next::Park);
        assert_eq!(add(&mut failures, now + 10 * hour), Next::Park);
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
        let (mut failures, begun) = (Failures::default(), Instant::now());
        for n in 0..10_000 {
            let now = begun + Duration::from_secs(n);
            match failures.add(now, BROKER, None, 1.0) {
                Next::Retry(wait) => assert!(wait <= Duration::from_secs(2)),
                Next::Park => panic!("parked after {n}"),
            }
            assert_eq!(failures.is_lasting(), n >= 5);
        }
    }
}
