//! `/api/v1/self/…` and `/metrics`: health of this process.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{Config, Params, Routes};
use crate::identity::Action;
use crate::telemetry::build;
use crate::{App, Timestamp, health};

/// A store that takes longer than this counts as unreachable.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes(config: &Config) -> Routes {
    let scrapers = if config.metrics_public { Action::Public } else { Action::AdminRead };
    Routes::new()
        .route(Action::Public, routes!(info))
        .route(Action::Public, routes!(ping))
        .route(Action::Public, routes!(liveliness))
        .route(Action::Public, routes!(readiness))
        .route(Action::Public, routes!(started))
        .route(scrapers, routes!(metrics))
}

#[derive(Serialize, ToSchema)]
struct Info {
    buildtime: &'static str,
    revision: &'static str,
    version: &'static str,
}

/// Version and build of the server.
#[utoipa::path(get, path = "/api/v1/self/info", tag = "self", responses((status = 200, body = Info)))]
async fn info() -> Json<Info> {
    let (buildtime, revision) = (build::BUILD_TIME, build::REVISION);
    Json(Info { buildtime, revision, version: build::VERSION })
}

#[derive(Serialize, ToSchema)]
struct Pong {
    response: String,
}

/// Responds if the server is reachable.
#[utoipa::path(get, path = "/api/v1/self/ping", tag = "self", responses((status = 200, body = Pong)))]
async fn ping(State(app): State<App>) -> Json<Pong> {
    Json(Pong { response: format!("Pong - {}", app.ambient.now()) })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HealthParams {
    /// How much detail to return.
    #[serde(default, rename = "type")]
    #[param(inline)]
    detail: Detail,
}

#[derive(Deserialize, ToSchema, Default, PartialEq, Clone, Copy)]
#[schema(as = HealthDetail)]
#[serde(rename_all = "lowercase")]
enum Detail {
    #[default]
    Summary,
    Detailed,
}

#[derive(Serialize, ToSchema)]
struct Health {
    status: Status,
    time: Timestamp,
    checks: Vec<Check>,
}

#[derive(Serialize, ToSchema, Clone, Copy, PartialEq)]
#[schema(as = HealthStatus)]
#[serde(rename_all = "lowercase")]
enum Status {
    Success,
    /// Requests are served; a check failed.
    Degraded,
    Failed,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HealthCheck)]
struct Check {
    name: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
}

/// Returns the result of one check, with details if they were requested.
fn one_check(
    app: &App,
    params: &HealthParams,
    name: &'static str,
    fault: Option<String>,
    good: String,
) -> Health {
    let (time, detailed) = (app.ambient.now(), params.detail == Detail::Detailed);
    let status = if fault.is_none() { Status::Success } else { Status::Failed };
    let description = detailed.then(|| fault.unwrap_or(good));
    let name = name.to_owned();
    let check = Check { name, status, description, timestamp: detailed.then_some(time) };
    Health { status, time, checks: vec![check] }
}

fn respond(health: Health, failed: StatusCode) -> Response {
    let status = if health.status == Status::Failed { failed } else { StatusCode::OK };
    ([(header::CACHE_CONTROL, "no-store")], (status, Json(health))).into_response()
}

/// Returns the results of the domains' checks. None makes a probe fail: a restart would not bring back
/// what is away.
fn domain_checks(app: &App) -> impl Iterator<Item = Check> {
    let timestamp = Some(app.ambient.now());
    app.checks().run().into_iter().map(move |health::Check { name, result }| {
        let status = if result.is_ok() { Status::Success } else { Status::Failed };
        let description = Some(result.unwrap_or_else(|fault| fault));
        Check { name, status, description, timestamp }
    })
}

/// Liveness: the process responds. If it does not, restart it.
#[utoipa::path(get, path = "/api/v1/self/liveliness", tag = "self", params(HealthParams),
    responses((status = 200, body = Health), (status = 500, body = Health)))]
async fn liveliness(State(app): State<App>, Params(params): Params<HealthParams>) -> Response {
    let mut health = one_check(&app, &params, "process", None, "answers requests".into());
    if params.detail == Detail::Detailed {
        health.checks.extend(domain_checks(&app));
        if health.checks.iter().any(|check| check.status == Status::Failed) {
            health.status = Status::Degraded;
        }
    }
    respond(health, StatusCode::INTERNAL_SERVER_ERROR)
}

/// Readiness: the process can write to its store and read from it.
#[utoipa::path(get, path = "/api/v1/self/readiness", tag = "self", params(HealthParams),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn readiness(State(app): State<App>, Params(params): Params<HealthParams>) -> Response {
    let fault = match tokio::time::timeout(STORE_TIMEOUT, app.store.ping()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            tracing::warn!(%error, source = ?std::error::Error::source(&error), "not ready");
            Some(error.to_string())
        }
        Err(_) => Some(format!("no answer within {} s", STORE_TIMEOUT.as_secs())),
    };
    // Only the kind of store: its address is for admins.
    let good = app.store.describe().split(' ').next().unwrap_or("store").to_owned();
    let health = one_check(&app, &params, "store", fault, good);
    respond(health, StatusCode::SERVICE_UNAVAILABLE)
}

/// Startup: whether the process has started.
#[utoipa::path(get, path = "/api/v1/self/started", tag = "self", params(HealthParams),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn started(State(app): State<App>, Params(params): Params<HealthParams>) -> Response {
    let fault = (!app.metrics.started()).then(|| "still starting".to_owned());
    let health = one_check(&app, &params, "started", fault, "start-up is over".into());
    respond(health, StatusCode::SERVICE_UNAVAILABLE)
}

/// All metrics, in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "self",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
async fn metrics(State(app): State<App>) -> Response {
    let store = &app.store;
    let asked = async { tokio::try_join!(store.work_counts(), store.head()) };
    match tokio::time::timeout(STORE_TIMEOUT, asked).await {
        Ok(Ok((counts, head))) => app.metrics.store(&counts, &head),
        Ok(Err(error)) => tracing::warn!(%error, "store metrics are stale"),
        Err(_) => tracing::warn!("store metrics are stale: the store does not answer"),
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.metrics.encode()).into_response()
}
