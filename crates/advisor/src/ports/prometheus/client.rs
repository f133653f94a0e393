//! Asks a Prometheus, one attempt at a time. An answer is read as it streams in.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use kernel::outbound::{Delivery, Outbound, Target, TlsFiles, breaker, redact};
use kernel::telemetry::current_traceparent;
use kernel::{Ambient, Error, Result};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Method, Request, Response, StatusCode};
use serde::Deserialize;
use url::{Host, Url};

use super::auth::{Authenticator, Credential};
use super::failure::{Problem, QueryError};
use super::queries::Range;
use super::scan::{Answer, Limits, Scanner};
use crate::model::datasource::{Datasource, address};
use crate::model::user_source::UserSource;

pub const SYSTEM: &str = "Prometheus";

/// Of a response without success.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// The kernel's own timeout is so much later, for what takes time outside of the request.
const GRACE: Duration = Duration::from_secs(5);
/// The warnings that are shown of an answer.
const WARNING_CHARS_MAX: usize = 300;
/// Many queries are in flight, so some of them failing in a row is soon. A data source that answers
/// nothing else is down.
const BREAKER: breaker::Config = breaker::Config {
    failures_in_row: 32,
    failure_ratio: 0.9,
    window_calls_min: 64,
    window_ms: 10_000,
    open_ms: 1_000,
    open_max_ms: 60_000,
    probe_ms: 60_000,
};

/// A data source that speaks Prometheus' language.
pub struct Prometheus {
    target: Target,
    ambient: Ambient,
    base: Url,
    authenticator: Authenticator,
    timeout: Duration,
    concurrency_max: usize,
    answer_bytes_max: u64,
    /// Whether a user has given the address, so that it must be a public one.
    guarded: bool,
}

/// When a query is evaluated.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// By the clock of the data source.
    Now,
    At(Timestamp),
    Over(Range),
}

/// The members of a response without success.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    #[serde(rename = "errorType")]
    error_type: String,
}

impl Prometheus {
    /// `key` is the setting of the data source, for errors. Reads files, so it is for start-up.
    pub fn new(key: &str, datasource: &Datasource, outbound: &Outbound) -> Result<Self> {
        datasource.check(key)?;
        let base = datasource.base_url(key)?;
        let tls = outbound.tls(&format!("{key}.tls"), &datasource.tls)?;
        let setting = format!("{key}.authentication");
        let (authentication, guarded) = (&datasource.authentication, false);
        let authenticator =
            Authenticator::new(&setting, authentication, outbound, tls.clone(), guarded)?;
        Ok(Self::with(datasource, outbound, base, authenticator, tls, guarded))
    }

    /// One that a user has made. With `guarded` no connection leads to a private address: names are
    /// resolved and checked for each, and an address that is written out is checked here.
    pub async fn of_user(source: &UserSource, outbound: &Outbound, guarded: bool) -> Result<Self> {
        let UserSource { datasource, tls, .. } = source;
        let base = address("url", &datasource.url)?;
        if guarded && !matches!(base.host(), Some(Host::Domain(_))) {
            outbound.user_url("url", base.as_str()).await?;
        }
        if tls.insecure_skip_verify {
            let name = &source.name;
            tracing::warn!(datasource = name, "the certificates of a data source are not verified");
        }
        let tls = outbound.user_tls("tls", tls, guarded)?;
        let authentication = &datasource.authentication;
        let authenticator =
            Authenticator::new("authentication", authentication, outbound, tls.clone(), guarded)?;
        Ok(Self::with(datasource, outbound, base, authenticator, tls, guarded))
    }

    fn with(
        datasource: &Datasource,
        outbound: &Outbound,
        base: Url,
        authenticator: Authenticator,
        tls: Option<TlsFiles>,
        guarded: bool,
    ) -> Self {
        // Several data sources have the same name as a target, so each has a breaker of its own.
        let target = outbound.target(SYSTEM).with_attempts(1).with_breaker(BREAKER).with_tls(tls);
        Self {
            target: if guarded { target.guard_ssrf() } else { target },
            ambient: outbound.ambient().clone(),
            base,
            authenticator,
            timeout: Duration::from_secs(datasource.query_timeout_s),
            concurrency_max: datasource.concurrency_max,
            answer_bytes_max: datasource.answer_bytes_max,
            guarded,
        }
    }

    pub fn concurrency_max(&self) -> usize {
        self.concurrency_max
    }

    /// The clock and randomness of calls.
    pub fn ambient(&self) -> &Ambient {
        &self.ambient
    }

    /// The error of a caller that cannot go on without an answer.
    pub fn error(&self, error: &QueryError) -> Error {
        Error::unavailable(self.to_string(), error.why.clone())
    }

    /// Sends a query once. An answer that says that a part of the data is missing is an error.
    pub async fn query(&self, text: &str, when: When) -> Result<Answer, QueryError> {
        self.query_within(text, when, Limits::default()).await
    }

    /// The same, where an answer beyond the limits is an error.
    pub async fn query_within(
        &self,
        text: &str,
        when: When,
        limits: Limits,
    ) -> Result<Answer, QueryError> {
        let answer = self.send(text, when, limits, self.timeout).await?;
        match answer.partial() {
            None => Ok(answer),
            Some(warning) => {
                let warning: String = warning.chars().take(WARNING_CHARS_MAX).collect();
                Err(QueryError::new(Problem::Partial, format!("data is missing: {warning}")))
            }
        }
    }

    /// Asks whether it answers at all, within a time.
    pub async fn handshake(&self, timeout: Duration) -> Result<Answer, QueryError> {
        self.send("up", When::Now, Limits::default(), timeout.min(self.timeout)).await
    }

    async fn send(
        &self,
        text: &str,
        when: When,
        limits: Limits,
        timeout: Duration,
    ) -> Result<Answer, QueryError> {
        let (operation, mut form) = match when {
            When::Now => ("query", vec![("query", text.to_owned())]),
            When::At(time) => {
                ("query", vec![("query", text.to_owned()), ("time", time.to_string())])
            }
            When::Over(range) => ("query_range", range.form(text).to_vec()),
        };
        // It need not go on for longer than we wait.
        form.push(("timeout", format!("{}s", timeout.as_secs().max(1))));
        let known = OnceLock::new();
        let target = self.target.clone().with_timeout(timeout + GRACE);
        let called = target
            .call(operation, true, |_| async {
                let attempt = self.attempt(operation, &form, limits, timeout).await;
                attempt.map_err(|error| {
                    let failure = error.failure(SYSTEM);
                    // There is one attempt.
                    let _ = known.set(error);
                    failure
                })
            })
            .await;
        called.map_err(|error| {
            let unknown = || {
                let rejected = error.delivery() == Some(Delivery::Rejected);
                let problem = if rejected { Problem::Unreachable } else { Problem::TimedOut };
                let why = error.to_string();
                let why = why.strip_prefix("Prometheus: ").unwrap_or(&why);
                QueryError::new(problem, why)
            };
            known.into_inner().unwrap_or_else(unknown)
        })
    }

    async fn attempt(
        &self,
        operation: &str,
        form: &[(&str, String)],
        limits: Limits,
        timeout: Duration,
    ) -> Result<Answer, QueryError> {
        let mut credential = self.credential(None).await?;
        for last in [false, true] {
            let (client, request) = self.request(operation, form, timeout, &credential)?;
            let secrets = redact::secrets(request.headers());
            let sent = client.execute(request).await;
            let response =
                sent.map_err(|error| QueryError::of_transport(error, Problem::Unreachable))?;
            let status = response.status();
            if status.is_success() {
                return self.read(response, limits).await;
            }
            // The token expired or the file changed between two looks at it.
            if status == StatusCode::UNAUTHORIZED && !last && credential.is_some() {
                let other = self.credential(credential.as_ref()).await?;
                if other != credential {
                    credential = other;
                    continue;
                }
            }
            return Err(self.refusal(response, &secrets).await);
        }
        unreachable!("the last round returns")
    }

    async fn credential(
        &self,
        refused: Option<&Credential>,
    ) -> Result<Option<Credential>, QueryError> {
        self.authenticator.credential(refused).await.map_err(|error| {
            let problem = match error.delivery() {
                Some(Delivery::Unknown | Delivery::Throttled | Delivery::Rejected) => {
                    Problem::Unreachable
                }
                _ => Problem::Denied,
            };
            QueryError::new(problem, error.with_causes())
        })
    }

    /// A POST, because the length of URLs is limited.
    fn request(
        &self,
        operation: &str,
        form: &[(&str, String)],
        timeout: Duration,
        credential: &Option<Credential>,
    ) -> Result<(Client, Request), QueryError> {
        let mut url = self.base.clone();
        let mut path = url.path_segments_mut().expect("it was checked to have a host");
        path.pop_if_empty().extend(["api", "v1", operation]);
        drop(path);
        let mut request = self.target.request(Method::POST, url).form(form).timeout(timeout);
        if let Some((name, value)) = credential {
            request = request.header(name, value.clone());
        }
        if let Some(trace) = current_traceparent() {
            request = request.header("traceparent", trace);
        }
        let (client, request) = request.build_split();
        let request =
            request.map_err(|error| QueryError::of_transport(error, Problem::Rejected))?;
        Ok((client, request))
    }

    async fn read(&self, mut response: Response, limits: Limits) -> Result<Answer, QueryError> {
        let mut scanner = Scanner::new(limits);
        let mut bytes = 0;
        loop {
            let chunk = response.chunk().await;
            let chunk = chunk.map_err(|error| QueryError::of_transport(error, Problem::CutOff))?;
            let Some(chunk) = chunk else { break };
            bytes += chunk.len() as u64;
            if bytes > self.answer_bytes_max {
                let why = format!("its answer has more than {} bytes", self.answer_bytes_max);
                return Err(QueryError::new(Problem::TooLarge, why));
            }
            scanner.feed(&chunk).map_err(|error| QueryError::of_scan(&error))?;
        }
        scanner.finish().map_err(|error| QueryError::of_scan(&error))
    }

    async fn refusal(&self, mut response: Response, secrets: &[String]) -> QueryError {
        let (status, retry_after) = (response.status(), self.retry_after(response.headers()));
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await
            && body.len() + chunk.len() <= ERROR_BYTES_MAX
        {
            body.extend_from_slice(&chunk);
        }
        let kind: Refusal = serde_json::from_slice(&body).unwrap_or_default();
        // Of a user's address only the words of a Prometheus are shown: it may be another system,
        // which only we can reach.
        let is_shown = !self.guarded || !kind.error_type.is_empty();
        let said = if is_shown { redact::message(&body, secrets) } else { String::new() };
        let error = QueryError::of_status(status, &kind.error_type, &said);
        QueryError { retry_after, ..error }
    }

    /// Seconds, or a date.
    fn retry_after(&self, headers: &HeaderMap) -> Option<Duration> {
        let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        let now = self.ambient.now();
        Some(now.until(kernel::Timestamp(date.as_millisecond())))
    }
}

/// The address, without anything secret.
impl fmt::Display for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SYSTEM} at {}", redact::url(&self.base).trim_end_matches('/'))
    }
}
