//! What happens to every request: id and trace, limits, routing, panics, errors, headers, metrics.
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
use super::deferred::Deferred;
use super::failure;
use super::mount::MountedApi;
use super::{ErrorMapper, RequestContext};
use crate::error::panic_message;
use crate::telemetry::{Trace, with_trace};
use crate::{App, Error};

pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

pub(super) struct RequestPipeline {
    pub app: App,
    pub router: Router,
    pub cors: Option<CorsLayer>,
    pub server: Arc<Server>,
    /// By prefix of the path.
    pub mappers: Vec<(String, ErrorMapper)>,
    pub permits: Semaphore,
    /// The metric label of requests that no route matched.
    pub unmatched: Arc<str>,
}

/// The mounted API that serves a request; none if axum's router does.
type Resolved = Option<Arc<dyn MountedApi>>;

impl RequestPipeline {
    /// Handles a request that came from this address.
    pub async fn handle(&self, mut request: Request, origin: Option<IpAddr>) -> Response {
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
        let trace = self.trace_of(&span, request.headers());
        let server = self.server.clone();
        let context = RequestContext::of(&request, origin, trace, &app.ambient, server);
        let context = Arc::new(context);
        span.record("request_id", &context.request_id);
        request.extensions_mut().insert(context.clone());

        let mounted = self.server.mounts.iter().find_map(|mount| mount.resolve(&context.path));
        let response = with_trace(trace, self.run_limited(&context, &mounted, request));
        let mut response = response.instrument(span.clone()).await;
        self.finalize(&context, &mounted, &mut response);
        let (status, route) = (response.status().as_u16(), context.route.get());
        let route = route.unwrap_or(&self.unmatched);
        span.record("route", &**route).record("status", status);
        drop(in_flight);
        let took = began.elapsed();
        tracing::debug!(parent: &span, status, took_us = took.as_micros(), path = context.path);
        let method = app.metrics.request(context.method.as_str(), route.clone(), status, took);
        if let Some(mounted) = mounted
            && context.routed()
        {
            mounted.api().observe(method, route, status, took);
        }
        response
    }

    /// Returns the request's trace: a child of the caller's, or a new one.
    fn trace_of(&self, span: &tracing::Span, headers: &HeaderMap) -> Trace {
        let parent = headers.get(&TRACEPARENT).and_then(|v| Trace::parse(v.to_str().ok()?));
        if let Some(parent) = parent
            && !span.is_disabled()
        {
            parent.adopt(span);
        }
        Trace::of_span(span).unwrap_or_else(|| match parent {
            Some(parent) => parent.child(&self.app.ambient),
            None => Trace::new(&self.app.ambient),
        })
    }

    /// Runs the request within the limits on size, concurrency and time.
    async fn run_limited(
        &self,
        context: &Arc<RequestContext>,
        mounted: &Resolved,
        mut request: Request,
    ) -> Response {
        if let Err(error) = self.check_headers(&request) {
            return error.into_response();
        }
        // Probes and scrapes must succeed on a busy server.
        let vital = context.path.starts_with("/api/v1/self/") || context.path == "/metrics";
        let permit = self.permits.try_acquire();
        if permit.is_err() && !vital {
            let why = "as many as http.concurrency_max allows are being answered";
            return Error::unavailable("capacity for more concurrent requests", why)
                .into_response();
        }
        if !request.body().is_end_stream() {
            DefaultBodyLimit::max(self.server.config.body_bytes_max).apply(&mut request);
        }
        let timeout = self.server.config.request_timeout();
        let mut response = match &self.cors {
            None => bounded(timeout, self.route(context, mounted, request)).await,
            Some(cors) => {
                let inner = service_fn(async |request| {
                    Ok::<_, Infallible>(self.route(context, mounted, request).await)
                });
                let response = cors.layer(inner).oneshot(request).map(|Ok(response)| response);
                bounded(timeout, response).await
            }
        };
        drop(permit);
        match Deferred::take(&mut response) {
            Some((wait, deferred)) => {
                let mut deferred = bounded(wait + timeout, deferred).await;
                // The CORS layer saw only the placeholder.
                let placeholder = std::mem::take(response.headers_mut()).into_iter();
                let cors = placeholder.filter(|(name, _)| *name != Some(header::CONTENT_LENGTH));
                deferred.headers_mut().extend(cors);
                deferred
            }
            None => response,
        }
    }

    /// Dispatches to the mounted API, or to axum's router.
    async fn route(
        &self,
        context: &Arc<RequestContext>,
        mounted: &Resolved,
        request: Request,
    ) -> Response {
        if let Some(mounted) = mounted {
            return mounted.clone().dispatch(self.app.clone(), context.clone(), request).await;
        }
        let Ok(mut response) = self.router.clone().call(request).await;
        // axum itself responds to a method that a path does not have.
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let method = context.method.to_string();
            let error = || Arc::new(Error::MethodNotAllowed { method });
            response.extensions_mut().get_or_insert_with(error);
        }
        response
    }

    /// Checks the size of the headers. That of the body is checked when its route is known.
    fn check_headers(&self, request: &Request) -> Result<(), Error> {
        let headers = request.headers();
        let header_bytes: usize = headers.iter().map(|(k, v)| k.as_str().len() + v.len()).sum();
        let header_bytes_max = self.server.config.header_bytes_max;
        if header_bytes + request.uri().path().len() > header_bytes_max {
            let message = format!("are larger than {header_bytes_max} bytes together");
            return Err(Error::invalid("headers", message));
        }
        Ok(())
    }

    /// Writes errors, and adds the headers that every response has.
    fn finalize(&self, context: &RequestContext, mounted: &Resolved, response: &mut Response) {
        if let Some(error) = response.extensions_mut().remove::<Arc<Error>>() {
            failure::log(&error, context);
            let mut rendered = match (mounted, self.mapper(&context.path)) {
                (Some(mounted), _) => mounted.api().error(&error, context),
                (None, Some(mapper)) => mapper(&error, context),
                (None, None) => failure::render(&error, context),
            };
            failure::add_headers(rendered.headers_mut(), &error, context);
            // Headers that layers have added, such as `allow` and those of CORS, stay.
            response.headers_mut().remove(header::CONTENT_LENGTH);
            for (name, value) in response.headers() {
                rendered.headers_mut().entry(name).or_insert_with(|| value.clone());
            }
            *response = rendered;
        }
        let headers = response.headers_mut();
        if let Some(mounted) = mounted
            && context.routed()
        {
            mounted.api().add_headers(context, headers);
        }
        if let Ok(id) = HeaderValue::from_str(&context.request_id) {
            headers.insert(&REQUEST_ID, id);
        }
        if let Ok(trace) = HeaderValue::from_bytes(&context.trace.text()) {
            headers.insert(&TRACEPARENT, trace);
        }
        if context.method == Method::HEAD {
            if let Some(length) = response.body().size_hint().exact() {
                response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
            }
            *response.body_mut() = Body::empty();
        }
    }

    fn mapper(&self, path: &str) -> Option<&ErrorMapper> {
        let mapper = self.mappers.iter().find(|(prefix, _)| path.starts_with(prefix));
        mapper.map(|(_, mapper)| mapper)
    }
}

/// Waits for a response, and replaces it if it takes too long or panics. A response that is ready
/// at once costs no timer.
async fn bounded(timeout: Duration, response: impl Future<Output = Response>) -> Response {
    let mut response = std::pin::pin!(AssertUnwindSafe(response).catch_unwind());
    let in_time = match poll_immediate(&mut response).await {
        Some(response) => Ok(response),
        None => tokio::time::timeout(timeout, response).await,
    };
    match in_time {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            Error::internal("a handler panicked", panic_message(panic.as_ref())).into_response()
        }
        Err(_) => {
            let what = format!("an answer within {} s", timeout.as_secs());
            Error::unavailable(what, "the handler did not finish").into_response()
        }
    }
}
