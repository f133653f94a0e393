//! Puts the routes, their guards and what surrounds every request together.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_http::cors::CorsLayer;

use super::context::Server;
use super::envelope::Envelope;
use super::guard::Gate;
use super::{Config, Routes, Surface, api};
use crate::{App, Error, Result};

/// The whole REST surface as one service: the kernel's routes and those given. For tests that
/// call it in process; [`super::serve`] puts it behind a listener.
pub fn router(app: App, routes: Routes, config: &Config) -> Result<Surface> {
    closable_router(app, routes, config, CancellationToken::new())
}

pub(super) fn closable_router(
    app: App,
    routes: Routes,
    config: &Config,
    closing: CancellationToken,
) -> Result<Surface> {
    config.check()?;
    let routes = api::routes(config).merge(routes);
    let document = serde_json::to_vec(&routes.document())
        .map_err(|e| Error::internal("the OpenAPI document", e))?;
    let server = Server {
        closing,
        document: document.into(),
        documents: routes.documents(),
        gate: Gate::new(config),
        body_bytes_max: config.body_bytes_max,
        body_pause_max: config.body_pause_max(),
    };
    let (mappers, surfaces) = (routes.mappers(), routes.own_surfaces());
    let matched = routes.into_router(&app).with_state(app.clone());
    let router = matched.clone().fallback(move |request| unmatched(matched, request));
    Ok(Surface::new(Envelope {
        app,
        router,
        surfaces,
        cors: cors(&config.cors_origins)?,
        config: config.clone(),
        server: Arc::new(server),
        mappers,
        slots: Semaphore::new(config.concurrency_max),
        unmatched: "unmatched".into(),
    }))
}

/// One trailing slash on a path that exists without it is taken as not written.
async fn unmatched(matched: Router, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let shorter = path.strip_suffix('/').filter(|path| !path.is_empty());
    let uri = shorter.and_then(|path| match request.uri().query() {
        Some(query) => format!("{path}?{query}").parse::<Uri>().ok(),
        None => path.parse().ok(),
    });
    let Some(uri) = uri else { return Error::NotFound(path).into_response() };
    *request.uri_mut() = uri;
    let retold = matched.fallback(async || Error::NotFound(path));
    retold.oneshot(request).await.into_response()
}

fn cors(origins: &[String]) -> Result<Option<CorsLayer>> {
    if origins.is_empty() {
        return Ok(None);
    }
    let origins: Vec<HeaderValue> = origins
        .iter()
        .map(|origin| {
            let value = HeaderValue::from_str(origin);
            value.map_err(|_| {
                Error::invalid("http.cors_origins", format!("{origin:?} is no origin"))
            })
        })
        .collect::<Result<_>>()?;
    let named = HeaderName::from_static;
    Ok(Some(
        CorsLayer::new()
            .allow_origin(origins)
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
