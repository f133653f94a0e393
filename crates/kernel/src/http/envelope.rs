//! Around every request: its id and trace, limits, panics, errors in the right shape, metrics.
//! One layer rather than eight: it runs for every request, and the order matters.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use super::context::Server;
use super::failure::{self, Failure};
use super::later::Later;
use super::{Config, ErrorMapper, RequestContext};
use crate::telemetry::{Trace, with_trace};
use crate::{App, Error};

pub(super) struct Envelope {
    pub app: App,
    pub config: Config,
    pub server: Arc<Server>,
    pub mappers: Vec<(&'static str, ErrorMapper)>,
    pub slots: Semaphore,
    pub unmatched: Arc<str>,
}

pub(super) async fn envelope(
    State(envelope): State<Arc<Envelope>>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let app = &envelope.app;
    let in_flight = app.metrics.in_flight();
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(|| envelope.unmatched.clone(), |path| path.as_str().into());
    let mut context = RequestContext::of(&request, &app.ambient, envelope.server.clone());
    let span = tracing::debug_span!(
        "request",
        method = %context.method,
        route = %route,
        request_id = %context.request_id,
        status = tracing::field::Empty,
    );
    if !span.is_disabled() {
        context.trace.adopt(&span);
    }
    context.trace = Trace::of_span(&span).unwrap_or_else(|| context.trace.child(&app.ambient));
    let context = Arc::new(context);
    request.extensions_mut().insert(context.clone());

    let trace = context.trace;
    let answer = with_trace(trace, envelope.answer(&context, request, next));
    let mut response = answer.instrument(span.clone()).await;
    envelope.finish(&context, &mut response);
    let status = response.status().as_u16();
    span.record("status", status);
    drop(in_flight);
    let took = began.elapsed();
    tracing::debug!(parent: &span, status, took_us = took.as_micros(), path = context.path);
    app.metrics.request(context.method.as_str(), route, status, took);
    response
}

impl Envelope {
    async fn answer(&self, context: &RequestContext, request: Request, next: Next) -> Response {
        if let Err(error) = self.check(&request) {
            return error.into_response();
        }
        // Whoever asks whether this process is well must get an answer when it is busy.
        let vital = context.path.starts_with("/api/v1/self/") || context.path == "/metrics";
        let slot = self.slots.try_acquire();
        if slot.is_err() && !vital {
            return Error::Unavailable { what: "room for more requests".into(), source: None }
                .into_response();
        }
        let timeout = self.config.request_timeout();
        let mut response = bounded(timeout, next.run(request)).await;
        drop(slot);
        match Later::take(&mut response) {
            Some((wait, answer)) => bounded(wait + timeout, answer).await,
            None => response,
        }
    }

    /// Limits that can be decided before anything is read.
    fn check(&self, request: &Request) -> Result<(), Error> {
        let headers = request.headers();
        let header_bytes: usize = headers.iter().map(|(k, v)| k.as_str().len() + v.len()).sum();
        let header_bytes_max = self.config.header_bytes_max;
        if header_bytes + request.uri().path().len() > header_bytes_max {
            let message = format!("are larger than {header_bytes_max} bytes together");
            return Err(Error::invalid("headers", message));
        }
        let limit_bytes = self.config.body_bytes_max;
        let length = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
        match length.and_then(|length| length.parse::<u64>().ok()) {
            Some(length) if length > limit_bytes as u64 => Err(Error::TooLarge { limit_bytes }),
            _ => Ok(()),
        }
    }

    /// Writes errors down and adds what every response has.
    fn finish(&self, context: &RequestContext, response: &mut Response) {
        let failure = response.extensions_mut().remove::<Failure>().or_else(|| {
            // axum's own answer to a method that a path does not have.
            (response.status() == StatusCode::METHOD_NOT_ALLOWED).then(|| {
                Failure::new(Error::MethodNotAllowed { method: context.method.to_string() })
            })
        });
        if let Some(failure) = failure {
            failure::log(&failure.error, context);
            let mut rendered = match self.mapper(&context.path) {
                Some(mapper) => mapper(&failure.error, context),
                None => failure.render(context),
            };
            failure::add_headers(rendered.headers_mut(), &failure.error, context);
            // What the layers between have added, such as `allow` and CORS, stays.
            response.headers_mut().remove(header::CONTENT_LENGTH);
            for (name, value) in response.headers() {
                rendered.headers_mut().entry(name).or_insert_with(|| value.clone());
            }
            *response = rendered;
        }
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&context.request_id) {
            headers.insert("x-request-id", id);
        }
        if let Ok(trace) = HeaderValue::from_str(&context.trace.to_string()) {
            headers.insert("traceparent", trace);
        }
    }

    fn mapper(&self, path: &str) -> Option<ErrorMapper> {
        self.mappers.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, mapper)| *mapper)
    }
}

/// The answer, or what to say if it takes too long or panics.
async fn bounded(timeout: Duration, answer: impl Future<Output = Response>) -> Response {
    let answer = AssertUnwindSafe(answer).catch_unwind();
    match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => panicked(panic.as_ref()),
        Err(_) => {
            let what = format!("an answer within {} s", timeout.as_secs());
            Error::Unavailable { what, source: None }.into_response()
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Response {
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    let said = said.unwrap_or_else(|| "no message".into());
    Error::internal("a handler panicked", said).into_response()
}
