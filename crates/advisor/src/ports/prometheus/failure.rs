//! Why a query has no answer, by what may be done about it.

use std::time::Duration;

use kernel::outbound::{Delivery, Failure};
use kernel::{Error, labels};
use reqwest::StatusCode;

use super::scan::ScanError;

labels! {
    pub enum Problem {
        /// It cannot be reached, or fails by itself.
        Unreachable = "unreachable",
        /// The answer ends before its end.
        CutOff = "cut_off",
        /// There is no whole answer in time.
        TimedOut = "timed_out",
        /// It is healthy, and refuses because there are too many queries.
        Throttled = "throttled",
        /// Asked for so much, it refuses or answers with too much.
        TooLarge = "too_large",
        /// Data is missing: a part of a distributed data source did not answer.
        Partial = "partial",
        /// Our credentials are not accepted.
        Denied = "denied",
        /// The query or the address is not accepted.
        Rejected = "rejected",
        /// The answer is not one of Prometheus.
        Unreadable = "unreadable",
    }
}

/// A query without an answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct QueryError {
    pub problem: Problem,
    pub why: String,
    /// When the other side allows a retry.
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// Whether a query for less may be answered.
    pub fn is_of_size(self) -> bool {
        matches!(self, Problem::TooLarge | Problem::TimedOut | Problem::CutOff)
    }

    /// Whether the same query may be answered later, when the data source is well again.
    pub fn is_transient(self) -> bool {
        match self {
            Problem::Unreachable
            | Problem::CutOff
            | Problem::TimedOut
            | Problem::Throttled
            | Problem::Partial => true,
            Problem::TooLarge | Problem::Denied | Problem::Rejected | Problem::Unreadable => false,
        }
    }

    fn delivery(self) -> Delivery {
        match self {
            Problem::Unreachable | Problem::TimedOut => Delivery::Unknown,
            Problem::Throttled => Delivery::Throttled,
            // It did answer. If it is gone since, the next query finds out.
            _ => Delivery::Answered,
        }
    }
}

impl QueryError {
    pub fn new(problem: Problem, why: impl Into<String>) -> Self {
        Self { problem, why: why.into(), retry_after: None }
    }

    /// How the kernel counts it.
    pub(super) fn failure(&self, system: &str) -> Failure {
        let error = Error::unavailable(system, self.why.clone());
        let failure = Failure::new(self.problem.delivery(), error);
        Failure { retry_after: self.retry_after, ..failure }
    }

    pub(super) fn of_transport(error: reqwest::Error, problem: Problem) -> Self {
        let problem = match problem {
            _ if error.is_connect() => Problem::Unreachable,
            _ if error.is_timeout() => Problem::TimedOut,
            problem => problem,
        };
        // It would print the URL, which may hold secrets.
        Self::new(problem, causes(&error.without_url()))
    }

    pub(super) fn of_scan(error: &ScanError) -> Self {
        let problem = match error {
            ScanError::Truncated { .. } => Problem::CutOff,
            // Of less, what is wrong with one container is not in the way of the others.
            ScanError::TooLarge { .. }
            | ScanError::DuplicateSeries { .. }
            | ScanError::Unordered { .. } => Problem::TooLarge,
            ScanError::Failed { .. } => Problem::Rejected,
            ScanError::Malformed { .. } | ScanError::Invalid { .. } => Problem::Unreadable,
        };
        Self::new(problem, error.to_string())
    }

    /// Of a response without success. `kind` is the `errorType` of its body.
    pub(super) fn of_status(status: StatusCode, kind: &str, said: &str) -> Self {
        let (problem, hint) = match status.as_u16() {
            422 | 413 | 414 => (Problem::TooLarge, ""),
            401 | 403 => (Problem::Denied, "; check the authentication of the data source"),
            // What Prometheus answers when a query exceeds its own timeout, too.
            503 if kind == "timeout" => (Problem::TimedOut, ""),
            408 | 504 => (Problem::TimedOut, ""),
            429 | 503 => (Problem::Throttled, ""),
            500..=599 => (Problem::Unreachable, ""),
            404 | 405 => (Problem::Rejected, "; check the URL of the data source"),
            300..=399 => (Problem::Rejected, "; redirects are not followed"),
            _ => (Problem::Rejected, ""),
        };
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        Self::new(problem, format!("it answered {status}{said}{hint}"))
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_may_be_done() {
        for (status, kind, problem) in [
            (400, "bad_data", Problem::Rejected),
            (401, "", Problem::Denied),
            (404, "", Problem::Rejected),
            (413, "", Problem::TooLarge),
            (422, "execution", Problem::TooLarge),
            (429, "", Problem::Throttled),
            (302, "", Problem::Rejected),
            (500, "internal", Problem::Unreachable),
            (502, "", Problem::Unreachable),
            (503, "", Problem::Throttled),
            (503, "timeout", Problem::TimedOut),
            (504, "", Problem::TimedOut),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = QueryError::of_status(status, kind, "why");
            assert_eq!(error.problem, problem, "{status}");
            assert!(error.why.contains(": why"), "{error}");
        }
        assert!(Problem::TooLarge.is_of_size() && !Problem::Partial.is_of_size());
        assert!(Problem::Partial.is_transient() && !Problem::TooLarge.is_transient());
    }
}
