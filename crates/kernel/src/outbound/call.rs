//! One call to another system, whatever the protocol: breaker, timeout, retries, span, metric.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Instrument;

use super::breaker::{self, Breaker};
use super::{Inner, Observation, TlsFiles};
use crate::{Backoff, Class, Error, Result};

/// A system that we call.
#[derive(Clone)]
pub struct Target {
    pub(super) inner: Arc<Inner>,
    name: Arc<str>,
    breaker: Arc<Mutex<Breaker>>,
    pub(super) timeout: Duration,
    attempts_max: u32,
    pub(super) guard_ssrf: bool,
    pub(super) tls: Option<TlsFiles>,
}

/// Why an attempt failed, and whether a retry is safe.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub delivery: Delivery,
    /// When the other side allows a retry.
    pub retry_after: Option<Duration>,
}

/// Whether a failed call may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The circuit breaker is open: not sent.
    Rejected,
    /// No connection: a retry cannot repeat an effect.
    NotSent,
    /// The response was lost, late or broken: the call may have been executed.
    Unknown,
    /// The other side is healthy and refused because it is overloaded.
    Throttled,
    /// The other side is healthy and refused. A retry would be refused too.
    Answered,
}

impl Delivery {
    pub fn label(self) -> &'static str {
        match self {
            Delivery::Rejected => "held",
            Delivery::NotSent => "not_sent",
            Delivery::Unknown => "unknown",
            Delivery::Throttled => "busy",
            Delivery::Answered => "answered",
        }
    }
}

impl Failure {
    pub fn new(delivery: Delivery, error: Error) -> Failure {
        Failure { error: error.with_delivery(delivery), delivery, retry_after: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let delivery = error.delivery().unwrap_or(match error.class() {
            Class::Transient => Delivery::Unknown,
            _ => Delivery::Answered,
        });
        Failure::new(delivery, error)
    }
}

impl Target {
    pub(super) fn new(inner: Arc<Inner>, name: &str, breaker: Arc<Mutex<Breaker>>) -> Target {
        let timeout = Duration::from_millis(inner.config.timeout_ms);
        let attempts_max = inner.config.attempts_max;
        let (name, guard_ssrf, tls) = (name.into(), false, None);
        Target { inner, name, breaker, timeout, attempts_max, guard_ssrf, tls }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the timeout of each attempt.
    pub fn with_timeout(mut self, timeout: Duration) -> Target {
        self.timeout = timeout;
        self
    }

    /// Sets how often a call is attempted: 1 for callers that retry themselves.
    pub fn with_attempts(mut self, attempts_max: u32) -> Target {
        self.attempts_max = attempts_max;
        self
    }

    /// Uses a breaker of its own, for one of several systems of the same name.
    pub fn with_breaker(mut self, config: breaker::Config) -> Target {
        self.breaker = Arc::new(Mutex::new(Breaker::new(config)));
        self
    }

    /// Refuses addresses that users must not reach through us; see [`super::EgressPolicy`].
    pub fn guard_ssrf(mut self) -> Target {
        self.guard_ssrf = true;
        self
    }

    /// Makes the call and retries where that is safe: always if it was not sent; if the response was
    /// lost, only if the call is idempotent. `attempt` gets its number, from 1.
    pub async fn call<T, F, Fut>(
        &self,
        operation: &str,
        idempotent: bool,
        mut attempt: F,
    ) -> Result<T>
    where
        F: FnMut(u32) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let span = tracing::debug_span!(
            "outbound",
            otel.name = format!("{} {operation}", self.name),
            otel.kind = "client",
            system = &*self.name,
            operation,
            attempts = tracing::field::Empty,
            outcome = tracing::field::Empty,
        );
        async {
            for number in 1.. {
                tracing::Span::current().record("attempts", number);
                let failure = match self.attempt(operation, number, &mut attempt).await {
                    Ok(value) => return Ok(value),
                    Err(failure) => failure,
                };
                tracing::Span::current().record("outcome", failure.delivery.label());
                let Some(pause) = self.pause_before_next(&failure, number, idempotent) else {
                    return Err(failure.error);
                };
                tracing::debug!(error = %failure.error, ?pause, "retrying");
                tokio::time::sleep(pause).await;
            }
            unreachable!("the loop ends with a result")
        }
        .instrument(span)
        .await
    }

    async fn attempt<T, F, Fut>(
        &self,
        operation: &str,
        number: u32,
        attempt: &mut F,
    ) -> Result<T, Failure>
    where
        F: FnMut(u32) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let admitted = self.breaker.lock().admit(self.inner.ambient.now());
        // Used for the metric only; no decision depends on it.
        let began = tokio::time::Instant::now();
        let result = match admitted {
            Err(wait) => Err(Failure::new(Delivery::Rejected, self.circuit_open_error(wait))),
            Ok(permit) => {
                let result = tokio::time::timeout(self.timeout, attempt(number))
                    .await
                    .unwrap_or_else(|_| Err(Failure::new(Delivery::Unknown, self.timeout_error())));
                let broken = result.as_ref().err().filter(|failure| {
                    !matches!(failure.delivery, Delivery::Throttled | Delivery::Answered)
                });
                let mut breaker = self.breaker.lock();
                breaker.report(permit, broken.is_none(), self.inner.ambient.now());
                if let Some(failure) = broken {
                    breaker.last_failure = failure.error.to_string();
                }
                drop(breaker);
                result
            }
        };
        (self.inner.observe)(&Observation {
            system: &self.name,
            operation,
            attempt: number,
            failure: result.as_ref().err().map(|failure| failure.delivery),
            took: began.elapsed(),
            breaker: self.breaker.lock().phase(),
        });
        result
    }

    fn pause_before_next(
        &self,
        failure: &Failure,
        number: u32,
        idempotent: bool,
    ) -> Option<Duration> {
        let config = &self.inner.config;
        let safe = match failure.delivery {
            Delivery::NotSent | Delivery::Throttled => true,
            Delivery::Unknown => idempotent,
            Delivery::Rejected | Delivery::Answered => false,
        };
        if !safe || number >= self.attempts_max {
            return None;
        }
        let longest = Duration::from_millis(config.backoff_max_ms);
        match failure.retry_after {
            // Too long to wait here: the caller retries later.
            Some(asked) if asked > longest => None,
            Some(asked) => Some(asked),
            None => {
                let first = Duration::from_millis(config.backoff_ms);
                Some(Backoff { first, longest }.delay(number - 1, self.inner.ambient.fraction()))
            }
        }
    }

    fn circuit_open_error(&self, wait: Duration) -> Error {
        let seconds = wait.as_secs_f64();
        let last = self.breaker.lock().last_failure.clone();
        let last = last.strip_prefix(&format!("{}: ", self.name)).unwrap_or(&last);
        let why = format!(
            "it failed repeatedly; the circuit breaker is open for another {seconds:.1} s; last: {last}"
        );
        Error::unavailable(&*self.name, why)
    }

    fn timeout_error(&self) -> Error {
        let limit = self.timeout.as_secs_f64();
        Error::unavailable(&*self.name, format!("no response within {limit:.1} s"))
    }
}
