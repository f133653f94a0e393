//! `/api/v1/work`: the work queue: what is due, running, retrying, stopped and why.

use async_trait::async_trait;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{CommandRequest, Params, PathKey, Routes, valid_name};
use super::limit;
use crate::change::{Change, Wake, Work};
use crate::command::{AuditFields, Command, CommandContext, Decided, Nothing};
use crate::identity::Action;
use crate::queue::{QueueRow, State as RowState};
use crate::store::{WorkCount, WorkFilter};
use crate::{App, Error, Key, Lane, Result};

const LIMIT_MAX: usize = 1000;

pub(super) fn routes() -> Routes {
    Routes::new()
        .route(Action::AdminRead, routes!(list))
        .command(Retry, routes!(retry))
        .command(Pause, routes!(pause))
        .command(Resume, routes!(resume))
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
    action: &'static str,
}

/// Returns what a command about an object's work replies and writes to the audit log.
fn acted(key: &Key, org: &str, action: &'static str) -> Decided<Acted> {
    let audit = AuditFields { target: key.to_string(), org: org.into(), ..AuditFields::default() };
    Decided::new(202, Acted { key: key.clone(), action }, audit)
}

/// Returns the object's row, if it has one, and its organisation.
async fn row(app: &App, key: &Key) -> Result<(Option<QueueRow>, String)> {
    let filter = WorkFilter { key: Some(key.clone()), ..WorkFilter::default() };
    if let Some(row) = app.store.work(&filter, 1).await?.pop() {
        let org = row.org.clone();
        return Ok((Some(row), org));
    }
    let object = app.store.object(key).await?;
    let object = object.ok_or_else(|| Error::NotFound(key.to_string()))?;
    Ok((None, object.org.clone()))
}

/// Reconciles an object now, even if its work was stopped or due later.
#[utoipa::path(post, path = "/api/v1/work/{kind}/{id}/retry", tag = "work",
    params(("kind" = String, Path), ("id" = String, Path)), responses((status = 202, body = Acted)))]
async fn retry(PathKey(key): PathKey, command: CommandRequest) -> Result<Response> {
    command.execute(Retry::NAME, Some(key)).await
}

struct Retry;

#[async_trait]
impl Command for Retry {
    const NAME: &'static str = "work.retry";
    const ACTION: Action = Action::AdminWrite;
    const READS_SUBJECT: bool = false;
    type Body = Nothing;
    type Reply = Acted;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Acted>> {
        let key = cx.key()?;
        let (row, org) = row(cx.app, key).await?;
        if row.is_some_and(|row| row.paused) {
            return Err(Error::Conflict(format!("{key} is paused; resume it first")));
        }
        let decided = acted(key, &org, "retry");
        let wake = Wake { key: key.clone(), org, lane: Lane::Urgent, due: cx.now };
        Ok(decided.change(Change { wakes: vec![wake], ..Change::default() }))
    }
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = PauseWork)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    /// The reason, which is shown with the row; without it, who paused it.
    reason: Option<String>,
}

/// Pauses reconciliation of an object until it is resumed.
#[utoipa::path(post, path = "/api/v1/work/{kind}/{id}/pause", tag = "work", request_body = PauseBody,
    params(("kind" = String, Path), ("id" = String, Path)), responses((status = 202, body = Acted)))]
async fn pause(PathKey(key): PathKey, command: CommandRequest) -> Result<Response> {
    command.execute(Pause::NAME, Some(key)).await
}

struct Pause;

#[async_trait]
impl Command for Pause {
    const NAME: &'static str = "work.pause";
    const ACTION: Action = Action::AdminWrite;
    const READS_SUBJECT: bool = false;
    type Body = PauseBody;
    type Reply = Acted;

    async fn decide(&self, cx: &CommandContext<'_>, body: PauseBody) -> Result<Decided<Acted>> {
        let by = || format!("paused by {}", cx.principal.subject);
        let reason = body.reason.unwrap_or_else(by);
        valid_name("reason", &reason)?;
        let key = cx.key()?;
        let (_, org) = row(cx.app, key).await?;
        let mut decided = acted(key, &org, "pause");
        if let Some(audit) = &mut decided.audit {
            audit.after = crate::Json::encode(&json!({ "reason": reason }));
        }
        let work = Work::Pause { key: key.clone(), org, reason };
        Ok(decided.change(Change { work: Some(work), ..Change::default() }))
    }
}

/// Resumes reconciliation of an object.
#[utoipa::path(post, path = "/api/v1/work/{kind}/{id}/resume", tag = "work",
    params(("kind" = String, Path), ("id" = String, Path)), responses((status = 202, body = Acted)))]
async fn resume(PathKey(key): PathKey, command: CommandRequest) -> Result<Response> {
    command.execute(Resume::NAME, Some(key)).await
}

struct Resume;

#[async_trait]
impl Command for Resume {
    const NAME: &'static str = "work.resume";
    const ACTION: Action = Action::AdminWrite;
    const READS_SUBJECT: bool = false;
    type Body = Nothing;
    type Reply = Acted;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Acted>> {
        let key = cx.key()?;
        let (row, org) = row(cx.app, key).await?;
        if row.is_none_or(|row| !row.paused) {
            return Err(Error::Conflict(format!("{key} is not paused")));
        }
        let work = Some(Work::Resume { key: key.clone() });
        Ok(acted(key, &org, "resume").change(Change { work, ..Change::default() }))
    }
}
