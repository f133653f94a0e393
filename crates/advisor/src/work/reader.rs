//! Asks a data source as often as a query needs, at the pace that it bears.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kernel::{Backoff, outbound};

use crate::ports::prometheus::pace::Class;
use crate::ports::prometheus::scan::{Answer, Limits};
use crate::ports::prometheus::{Gate, Problem, Prometheus, QueryError, When};

/// A healthy data source that has too many queries is asked this often.
const THROTTLED_ATTEMPTS_MAX: u32 = 8;
/// A query that takes too long is sent once more, alone or nearly so.
const TIMED_OUT_ATTEMPTS_MAX: u32 = 2;
/// A longer pause is not worth waiting for.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// `up` is answered at once by a data source that can answer the queries of shards.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Unlike any query of a shard.
const HANDSHAKE: Class = Class { query: usize::MAX, pods_log2: 0 };

pub struct Reader<'a> {
    client: &'a Prometheus,
    /// Of the data source: all readers in this process share it.
    gate: &'a Gate,
    sent: AtomicU64,
}

impl<'a> Reader<'a> {
    pub fn new(client: &'a Prometheus, gate: &'a Gate) -> Self {
        Self { client, gate, sent: AtomicU64::new(0) }
    }

    pub fn client(&self) -> &'a Prometheus {
        self.client
    }

    /// Queries that were sent, each attempt for one.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The answer to a query, after retries.
    pub async fn read(
        &self,
        text: &str,
        when: When,
        limits: Limits,
        class: Class,
    ) -> Result<Answer, QueryError> {
        self.retry(class, || self.client.query_within(text, when, limits)).await
    }

    /// Whether the data source answers.
    pub async fn handshake(&self) -> Result<Answer, QueryError> {
        self.retry(HANDSHAKE, || self.client.handshake(HANDSHAKE_TIMEOUT)).await
    }

    async fn retry<F>(&self, class: Class, attempt: impl Fn() -> F) -> Result<Answer, QueryError>
    where
        F: Future<Output = Result<Answer, QueryError>>,
    {
        let mut failed = 0;
        loop {
            let slot = self.gate.enter().await;
            self.sent.fetch_add(1, Ordering::Relaxed);
            let error = match attempt().await {
                Ok(answer) => {
                    slot.answered(class);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            failed += 1;
            let pause = pause_before_next(&error, failed, self.client.ambient().fraction());
            match error.problem {
                // Nobody asks while it wants none.
                Problem::Throttled => slot.overloaded(pause),
                Problem::TimedOut => slot.overloaded(None),
                _ => drop(slot),
            }
            let Some(pause) = pause else { return Err(error) };
            tracing::debug!(error = %error, problem = error.problem.label(), ?pause, "retrying");
            tokio::time::sleep(pause).await;
        }
    }
}

/// How long to wait after so many failures; none if it is not worth it. The numbers are those of all
/// calls to other systems.
fn pause_before_next(error: &QueryError, failed: u32, fraction: f64) -> Option<Duration> {
    let policy = outbound::Config::default();
    let attempts_max = match error.problem {
        Problem::Unreachable | Problem::CutOff | Problem::Partial => policy.attempts_max,
        Problem::TimedOut => TIMED_OUT_ATTEMPTS_MAX,
        Problem::Throttled => THROTTLED_ATTEMPTS_MAX,
        Problem::TooLarge | Problem::Denied | Problem::Rejected | Problem::Unreadable => 1,
    };
    let first = Duration::from_millis(policy.backoff_ms);
    let longest = Duration::from_millis(policy.backoff_max_ms);
    let delay = Backoff { first, longest }.delay(failed - 1, fraction);
    let pause = error.retry_after.unwrap_or(delay);
    (failed < attempts_max && pause <= PAUSE_MAX).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_asked_again_and_what_cannot_is_not() {
        let next = |problem, failed, retry_after_s: Option<u64>| {
            let retry_after = retry_after_s.map(Duration::from_secs);
            let error = QueryError { retry_after, ..QueryError::new(problem, "why") };
            pause_before_next(&error, failed, 1.0).map(|pause| pause.as_millis())
        };
        assert_eq!(next(Problem::Unreachable, 1, None), Some(100));
        assert_eq!(next(Problem::Unreachable, 2, None), Some(200));
        assert_eq!(next(Problem::Unreachable, 3, None), None);
        assert_eq!(next(Problem::Throttled, 7, None), Some(5_000));
        assert_eq!(next(Problem::Throttled, 8, None), None);
        assert_eq!(next(Problem::Throttled, 1, Some(30)), Some(30_000));
        assert_eq!(next(Problem::Throttled, 1, Some(61)), None);
        assert_eq!(
            (next(Problem::TimedOut, 1, None), next(Problem::TimedOut, 2, None)),
            (Some(100), None)
        );
        for problem in [Problem::TooLarge, Problem::Denied, Problem::Rejected, Problem::Unreadable]
        {
            assert_eq!(next(problem, 1, None), None);
        }
    }
}
