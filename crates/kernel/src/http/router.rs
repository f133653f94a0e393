//! Composes the routes, their permissions and the request pipeline.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::auth::RateGate;
use super::context::Server;
use super::pipeline::RequestPipeline;
use super::{Config, HttpService, Routes, api};
use crate::{App, Error, Result};

/// Returns the whole REST API as one service: the kernel's routes and those given. For tests that
/// call it in process; [`super::serve`] puts it behind a listener.
pub fn router(app: App, routes: Routes, config: &Config) -> Result<HttpService> {
    closable_router(app, routes, config, CancellationToken::new())
}

pub(super) fn closable_router(
    app: App,
    routes: Routes,
    config: &Config,
    closing: CancellationToken,
) -> Result<HttpService> {
    config.check()?;
    let mut routes = api::routes(config).merge(routes);
    routes.register_missing_commands(&app)?;
    app.commands().set_complete();
    let document = serde_json::to_vec(&routes.document())
        .map_err(|e| Error::internal("the OpenAPI document", e))?;
    let server = Server {
        closing,
        document: document.into(),
        mounts: routes.mounts.clone(),
        rate_gate: RateGate::new(config),
        config: config.clone(),
    };
    let mappers = routes.errors.clone();
    let matched = routes.into_router(&app).with_state(app.clone());
    let router = matched.clone().fallback(move |request| unmatched(matched, request));
    Ok(HttpService::new(RequestPipeline {
        app,
        router,
        cors: cors(&config.cors_origins)?,
        server: Arc::new(server),
        mappers,
        permits: Semaphore::new(config.concurrency_max),
        unmatched: "unmatched".into(),
    }))
}

/// Ignores one trailing slash on a path that exists without it.
async fn unmatched(matched: Router, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let shorter = path.strip_suffix('/').filter(|path| !path.is_empty());
    let uri = shorter.and_then(|path| match request.uri().query() {
        Some(query) => format!("{path}?{query}").parse::<Uri>().ok(),
        None => path.parse().ok(),
    });
    let Some(uri) = uri else { return Error::NotFound(path).into_response() };
    *request.uri_mut() = uri;
    let rerouted = matched.fallback(async || Error::NotFound(path));
    rerouted.oneshot(request).await.into_response()
}

/// Returns the CORS layer for the origins; `*` allows every origin.
fn cors(origins: &[String]) -> Result<Option<CorsLayer>> {
    if origins.is_empty() {
        return Ok(None);
    }
    let value = |origin: &String| {
        let invalid =
            |_| Error::invalid("http.cors_origins", format!("{origin:?} is not a valid origin"));
        HeaderValue::from_str(origin).map_err(invalid)
    };
    let allowed: AllowOrigin = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().map(value).collect::<Result<Vec<_>>>()?)
    };
    let named = HeaderName::from_static;
    Ok(Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers([
                header::AUTHORIZATION,
                header::CONTENT_TYPE,
                header::IF_NONE_MATCH,
                named("idempotency-key"),
                named("last-event-id"),
                named("traceparent"),
                named("x-request-id"),
            ])
            .expose_headers([header::ETAG, header::RETRY_AFTER, named("x-request-id")])
            .max_age(Duration::from_secs(600)),
    ))
}
