//! Calls over HTTP: classifies responses, and propagates the trace.

use std::time::Duration;

use axum::body::Bytes;
use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Method, Request, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use super::{Delivery, Failure, Inner, Target, install_tls, redact};
use crate::telemetry::{Trace, current_traceparent};
use crate::{Error, Result, Timestamp};

impl Target {
    /// A request builder for [`Target::http`]. The body must not be a stream.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client().request(method, url)
    }

    /// Sends the request. Returns a response below 500 as it is, except "too many requests";
    /// redirects are not followed. Retries by the rules of [`Target::call`]: methods that HTTP
    /// defines as idempotent are, and others with an `Idempotency-Key`.
    pub async fn http(&self, operation: &str, request: RequestBuilder) -> Result<Response> {
        let mut request =
            request.build().map_err(|e| Error::internal("a request", e.without_url()))?;
        request.timeout_mut().get_or_insert(self.timeout);
        let idempotent = matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS
        ) || request.headers().contains_key("idempotency-key");
        self.call(operation, idempotent, |_| self.send(request.try_clone())).await
    }

    async fn send(&self, request: Option<Request>) -> Result<Response, Failure> {
        let mut request =
            request.ok_or_else(|| Error::internal("a request", "its body is a stream"))?;
        let method = request.method().clone();
        let url = request.url().clone();
        let target = if self.guard_ssrf { redact::origin(&url) } else { redact::url(&url) };
        if self.guard_ssrf {
            let checked = self.inner.egress.check_host(&url).await;
            checked.map_err(|reason| Error::invalid("url", reason))?;
        }
        let secrets = redact::secrets(request.headers());
        // One that the caller gave is of what is sent, and matters more than that of the sending.
        if !request.headers().contains_key("traceparent") {
            request.headers_mut().insert("traceparent", self.traceparent());
        }
        tracing::debug!(%method, target, headers = ?redact::headers(request.headers()), "sending");
        let response = self.client().execute(request).await.map_err(|error| {
            let delivery = if error.is_connect() { Delivery::NotSent } else { Delivery::Unknown };
            // reqwest would print the URL, which may hold secrets.
            let error = Broken { what: format!("{method} {target}"), source: error.without_url() };
            Failure::new(delivery, Error::unavailable(self.name(), error))
        })?;
        let status = response.status();
        tracing::debug!(%method, target, %status, "answered");
        if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
            return Ok(response);
        }
        let busy = status == StatusCode::TOO_MANY_REQUESTS;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| self.wait_until(text));
        // What a user's URL answers is shown to nobody: it may be a system that only we can reach.
        let said = if self.guard_ssrf { String::new() } else { said(response, &secrets).await };
        let what = format!("{method} {target} answered {status}{said}");
        let error = Error::unavailable(self.name(), Later { what, retry_after });
        let delivery = if busy { Delivery::Throttled } else { Delivery::Unknown };
        Err(Failure { retry_after, ..Failure::new(delivery, error) })
    }

    /// How long a `Retry-After` asks to wait: seconds, or a date.
    fn wait_until(&self, text: &str) -> Option<Duration> {
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Some(self.inner.ambient.now().until(Timestamp(date.as_millisecond())))
    }

    /// The current trace, or a new one that is not sampled.
    fn traceparent(&self) -> HeaderValue {
        let new = || Trace { flags: 0, ..Trace::new(&self.inner.ambient) }.to_string();
        let text = current_traceparent().unwrap_or_else(new);
        HeaderValue::try_from(text).expect("hexadecimal digits and dashes")
    }

    fn client(&self) -> Client {
        let inner = &self.inner;
        match &self.tls {
            Some(tls) if tls.is_guarded() => tls.client(),
            _ if self.guard_ssrf => {
                inner.egress_client.get_or_init(|| inner.build_client(true)).clone()
            }
            Some(tls) => tls.client(),
            None => inner.client.get_or_init(|| inner.build_client(false)).clone(),
        }
    }
}

/// A response that asks to try again later.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Later {
    what: String,
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Broken {
    what: String,
    source: reqwest::Error,
}

impl Inner {
    fn build_client(&self, guarded: bool) -> Client {
        let builder = || {
            let builder = client_builder(Duration::from_millis(self.config.connect_timeout_ms));
            if guarded { builder.dns_resolver(self.egress.clone()) } else { builder }
        };
        builder().build().unwrap_or_else(|error| {
            // A container without certificates can still make calls without TLS.
            tracing::warn!(%error, "no system certificates; calls over TLS will fail");
            builder().tls_certs_only([]).build().expect("needs nothing of the system")
        })
    }
}

pub(super) fn client_builder(connect_timeout: Duration) -> ClientBuilder {
    install_tls();
    Client::builder()
        .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        // `Target::call` decides about retries.
        .retry(reqwest::retry::never())
        .no_proxy()
}

/// How much of an error response is read.
const SAID_BYTES_MAX: usize = 4096;

/// What an error response says, for the error message. Empty if it says nothing readable.
async fn said(response: Response, secrets: &[String]) -> String {
    let Ok(bytes) = body(response, SAID_BYTES_MAX).await else { return String::new() };
    match redact::message(&bytes, secrets) {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}

/// The body of a response, if it has at most `limit_bytes`.
pub async fn body(mut response: Response, limit_bytes: usize) -> Result<Bytes> {
    let what = redact::origin(response.url());
    let mut bytes = Vec::new();
    loop {
        let chunk =
            response.chunk().await.map_err(|e| Error::unavailable(&what, e.without_url()))?;
        let Some(chunk) = chunk else { return Ok(bytes.into()) };
        if bytes.len() + chunk.len() > limit_bytes {
            let why = format!("its response is larger than {limit_bytes} bytes");
            return Err(Error::unavailable(&what, why));
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// The body of a successful response as JSON, if it has at most `limit_bytes`.
pub async fn json<T: DeserializeOwned>(response: Response, limit_bytes: usize) -> Result<T> {
    let (what, status) = (redact::origin(response.url()), response.status());
    if !status.is_success() {
        let error =
            Error::unavailable(&what, format!("answered {status}{}", said(response, &[]).await));
        return Err(error.with_delivery(Delivery::Answered));
    }
    let bytes = body(response, limit_bytes).await?;
    serde_json::from_slice(&bytes).map_err(|e| Error::unavailable(&what, e))
}
