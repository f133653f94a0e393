//! `/api/v1/work`: the work queue: what is due, running, retrying, stopped and why.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{
    Body, Caller, Context, Idempotency, Params, PathKey, Routes, commit_idempotent, valid_name,
};
use super::limit;
use crate::change::{Change, CommandReply, Wake, Work};
use crate::identity::Action;
use crate::queue::{QueueRow, State as RowState};
use crate::store::{WorkCount, WorkFilter};
use crate::{App, Error, Key, Lane, Result};

const LIMIT_MAX: usize = 1000;

pub(super) fn routes() -> Routes {
    Routes::new()
        .route(Action::AdminRead, routes!(list))
        .route(Action::AdminWrite, routes!(retry))
        .route(Action::AdminWrite, routes!(pause))
        .route(Action::AdminWrite, routes!(resume))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    #[param(inline)]
    state: Option<RowState>,
    paused: Option<bool>,
    /// Only rows that have failed at least once.
    #[serde(default)]
    failing: bool,
    org: Option<String>,
    /// Only the row of this object, as `kind/id`.
    key: Option<String>,
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct WorkPage {
    rows: Vec<QueueRow>,
    /// Counts of the whole queue, regardless of the filter.
    counts: Vec<WorkCount>,
}

/// Rows of the work queue.
#[utoipa::path(get, path = "/api/v1/work", tag = "work", params(Filter),
    responses((status = 200, body = WorkPage)))]
async fn list(State(app): State<App>, Params(filter): Params<Filter>) -> Result<Json<WorkPage>> {
    let limit = limit(filter.limit, LIMIT_MAX)?;
    let Filter { state, paused, failing, org, key, .. } = filter;
    let key = key.as_deref().map(Key::parse).transpose()?;
    let filter = WorkFilter { key, org, state, paused, failing };
    let rows = app.store.work(&filter, limit).await?;
    let counts = app.store.work_counts().await?;
    Ok(Json(WorkPage { rows, counts }))
}

#[derive(Serialize, ToSchema)]
#[schema(as = WorkActed)]
struct Acted {
    key: Key,
    /// The action: retry, pause or resume.
    action: String,
}

/// Returns the response to an action, which is also kept for a repetition.
fn acted(key: &Key, action: &str) -> CommandReply {
    let body = Acted { key: key.clone(), action: action.into() };
    CommandReply { status: 202, body: crate::Json::encode(&body) }
}

/// Returns the object's row, if it has one, and its organisation.
async fn row(app: &App, key: &Key) -> Result<(Option<QueueRow>, String)> {
    let filter = WorkFilter { key: Some(key.clone()), ..WorkFilter::default() };
    if let Some(row) = app.store.work(&filter, 1).await?.pop() {
        let org = row.org.clone();
        return Ok((Some(row), org));
    }
    let object = app.store.get(std::slice::from_ref(key)).await?.pop();
    let object = object.ok_or_else(|| Error::NotFound(key.to_string()))?;
    Ok((None, object.org))
}

/// Reconciles an object now, even if its work was stopped or due later.
#[utoipa::path(post, path = "/api/v1/work/{kind}/{id}/retry", tag = "work",
    params(("kind" = String, Path), ("id" = String, Path)), responses((status = 202, body = Acted)))]
async fn retry(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    PathKey(key): PathKey,
    idempotency: Idempotency,
) -> Result<Response> {
    let idempotent = idempotency.of(b"");
    let work = async {
        let (row, org) = row(&app, &key).await?;
        if row.is_some_and(|row| row.paused) {
            return Err(Error::Conflict(format!("{key} is paused; resume it first")));
        }
        let audit = context.audit(&who, "work.retry", key.as_str(), &org);
        let wake = Wake { key: key.clone(), org, lane: Lane::Urgent, due: app.ambient.now() };
        let change = Change { wakes: vec![wake], audit: Some(audit), ..Change::default() };
        commit_idempotent(&app, &idempotent, change, acted(&key, "retry")).await
    };
    idempotent.run(app.store.as_ref(), work).await
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = PauseWork)]
#[serde(deny_unknown_fields)]
struct Pause {
    /// The reason, which is shown with the row.
    reason: String,
}

/// Pauses reconciliation of an object until it is resumed.
#[utoipa::path(post, path = "/api/v1/work/{kind}/{id}/pause", tag = "work", request_body = Pause,
    params(("kind" = String, Path), ("id" = String, Path)), responses((status = 202, body = Acted)))]
async fn pause(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    PathKey(key): PathKey,
    idempotency: Idempotency,
    body: Option<Body<Pause>>,
) -> Result<Response> {
    let (bytes, pause) = match body {
        Some(body) => (body.bytes, body.value),
        None => (Bytes::new(), Pause { reason: format!("paused by {}", who.subject) }),
    };
    valid_name("reason", &pause.reason)?;
    let idempotent = idempotency.of(&bytes);
    let work = async {
        let (_, org) = row(&app, &key).await?;
        let mut audit = context.audit(&who, "work.pause", key.as_str(), &org);
        audit.after = crate::Json::encode(&pause);
        let work = Work::Pause { key: key.clone(), org, reason: pause.reason };
        let change = Change { work: Some(work), audit: Some(audit), ..Change::default() };
        commit_idempotent(&app, &idempotent, change, acted(&key, "pause")).await
    };
    idempotent.run(app.store.as_ref(), work).await
}

/// Resumes reconciliation of an object.
#[utoipa::path(post, path = "/api/v1/work/{kind}/{id}/resume", tag = "work",
    params(("kind" = String, Path), ("id" = String, Path)), responses((status = 202, body = Acted)))]
async fn resume(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    PathKey(key): PathKey,
    idempotency: Idempotency,
) -> Result<Response> {
    let idempotent = idempotency.of(b"");
    let work = async {
        let (row, org) = row(&app, &key).await?;
        if row.is_none_or(|row| !row.paused) {
            return Err(Error::Conflict(format!("{key} is not paused")));
        }
        let audit = context.audit(&who, "work.resume", key.as_str(), &org);
        let work = Work::Resume { key: key.clone() };
        let change = Change { work: Some(work), audit: Some(audit), ..Change::default() };
        commit_idempotent(&app, &idempotent, change, acted(&key, "resume")).await
    };
    idempotent.run(app.store.as_ref(), work).await
}
