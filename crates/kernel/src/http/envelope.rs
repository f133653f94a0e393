//! Around every request: its id and trace, limits, panics, errors in the right shape, metrics.
//! One function rather than eight layers: it runs for every request, and the order matters.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::poll_immediate;
use tokio::sync::Semaphore;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_http::cors::CorsLayer;
use tracing::Instrument as _;

use super::context::Server;
use super::failure::{self, Failure};
use super::later::Later;
use super::routes::{OwnSurface, Take};
use super::{Config, ErrorMapper, RequestContext};
use crate::telemetry::{Trace, with_trace};
use crate::{App, Error};

pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

type Answer = Result<Response, Infallible>;

pub(super) struct Envelope {
    pub app: App,
    pub router: Router,
    pub surfaces: Vec<OwnSurface>,
    pub cors: Option<CorsLayer>,
    pub config: Config,
    pub server: Arc<Server>,
    pub mappers: Vec<(Take, ErrorMapper)>,
    pub slots: Semaphore,
    pub unmatched: Arc<str>,
}

impl Envelope {
    /// Answers a request that came from this address.
    pub async fn answer(&self, mut request: Request, origin: Option<IpAddr>) -> Response {
        let began = Instant::now();
        let app = &self.app;
        let in_flight = app.metrics.in_flight();
        let span = tracing::debug_span!(
            "request",
            method = %request.method(),
            route = tracing::field::Empty,
            request_id = tracing::field::Empty,
            status = tracing::field::Empty,
        );
        let trace = self.place(&span, request.headers());
        let server = self.server.clone();
        let context = RequestContext::of(&request, origin, trace, &app.ambient, server);
        let context = Arc::new(context);
        span.record("request_id", &context.request_id);
        request.extensions_mut().insert(context.clone());

        let answer = with_trace(trace, self.admitted(&context, request));
        let mut response = answer.instrument(span.clone()).await;
        self.finish(&context, &mut response);
        let (status, route) = (response.status().as_u16(), context.route.get());
        let route = route.unwrap_or(&self.unmatched);
        span.record("route", &**route).record("status", status);
        drop(in_flight);
        let took = began.elapsed();
        tracing::debug!(parent: &span, status, took_us = took.as_micros(), path = context.path);
        app.metrics.request(context.method.as_str(), route.clone(), status, took);
        response
    }

    /// Where in which trace the request is: a new place in the caller's trace or in one of its own.
    fn place(&self, span: &tracing::Span, headers: &HeaderMap) -> Trace {
        let theirs = headers.get(&TRACEPARENT).and_then(|v| Trace::parse(v.to_str().ok()?));
        if let Some(theirs) = theirs
            && !span.is_disabled()
        {
            theirs.adopt(span);
        }
        Trace::of_span(span).unwrap_or_else(|| match theirs {
            Some(theirs) => theirs.child(&self.app.ambient),
            None => Trace::new(&self.app.ambient),
        })
    }

    async fn admitted(&self, context: &Arc<RequestContext>, mut request: Request) -> Response {
        if let Err(error) = self.check(&request) {
            return error.into_response();
        }
        // Whoever asks whether this process is well must get an answer when it is busy.
        let vital = context.path.starts_with("/api/v1/self/") || context.path == "/metrics";
        let tracked = self.slots.try_acquire();
        if tracked.is_err() && !vital {
            return Error::Unavailable { what: "room for more requests".into(), source: None }
                .into_response();
        }
        if !request.body().is_end_stream() {
            DefaultBodyLimit::max(self.config.body_bytes_max).apply(&mut request);
        }
        let timeout = self.config.request_timeout();
        let mut response = match &self.cors {
            None => bounded(timeout, self.route(context, request)).await,
            Some(cors) => {
                let inner =
                    service_fn(async |request| Answer::Ok(self.route(context, request).await));
                let answer = cors.layer(inner).oneshot(request).map(|Ok(response)| response);
                bounded(timeout, answer).await
            }
        };
        drop(tracked);
        match Later::take(&mut response) {
            Some((wait, answer)) => bounded(wait + timeout, answer).await,
            None => response,
        }
    }

    /// To whoever takes the path: a domain's own surface, or axum's router.
    async fn route(&self, context: &Arc<RequestContext>, request: Request) -> Response {
        if let Some(own) = self.surfaces.iter().find(|own| (own.take)(&context.path)) {
            return (own.answer)(self.app.clone(), context.clone(), request).await;
        }
        let Ok(mut response) = self.router.clone().call(request).await;
        // axum's own answer to a method that a path does not have.
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let method = context.method.to_string();
            let failure = || Failure::new(Error::MethodNotAllowed { method });
            response.extensions_mut().get_or_insert_with(failure);
        }
        response
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
        if let Some(failure) = response.extensions_mut().remove::<Failure>() {
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
            headers.insert(&REQUEST_ID, id);
        }
        if let Ok(trace) = HeaderValue::from_bytes(&context.trace.text()) {
            headers.insert(&TRACEPARENT, trace);
        }
        if context.method == Method::HEAD {
            let length = response.body().size_hint().exact();
            let headers = response.headers_mut();
            if let Some(length) = length {
                headers.entry(header::CONTENT_LENGTH).or_insert(length.into());
            }
            *response.body_mut() = Body::empty();
        }
    }

    fn mapper(&self, path: &str) -> Option<&ErrorMapper> {
        self.mappers.iter().find(|(take, _)| take(path)).map(|(_, mapper)| mapper)
    }
}

/// The answer, or what to say if it takes too long or panics. Most are there at once: only those
/// that are not cost a timer.
async fn bounded(timeout: Duration, answer: impl Future<Output = Response>) -> Response {
    let mut answer = std::pin::pin!(AssertUnwindSafe(answer).catch_unwind());
    let in_time = match poll_immediate(&mut answer).await {
        Some(answer) => Ok(answer),
        None => tokio::time::timeout(timeout, answer).await,
    };
    match in_time {
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
