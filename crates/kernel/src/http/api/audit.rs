//! `/api/v1/audit`: who did what. A client verifies the hash chain itself: it reads the entries with
//! `?after=` and compares the last with `/api/v1/audit/head`.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{Params, Routes};
use super::limit;
use crate::identity::Action;
use crate::log::{AuditEntry, AuditFilter, LogHeads};
use crate::{App, Error, Result};

const LIMIT_MAX: usize = 1000;

pub(super) fn routes() -> Routes {
    Routes::new().route(Action::AdminRead, routes!(list)).route(Action::AdminRead, routes!(head))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AuditParams {
    actor: Option<String>,
    /// The object's key, or another target of the action.
    target: Option<String>,
    org: Option<String>,
    /// Only entries after this one, oldest first.
    after: Option<i64>,
    /// Only entries before this one, newest first.
    before: Option<i64>,
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct AuditPage {
    entries: Vec<AuditEntry>,
    /// If there may be more: the next `after`, or the next `before` when newest come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

/// Audit entries, newest first.
///
/// Oldest first if `after` is given.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditParams),
    responses((status = 200, body = AuditPage)))]
async fn list(
    State(app): State<App>,
    Params(params): Params<AuditParams>,
) -> Result<Json<AuditPage>> {
    if params.after.is_some() && params.before.is_some() {
        return Err(Error::invalid("before", "cannot be combined with after"));
    }
    let limit = limit(params.limit, LIMIT_MAX)?;
    let before = match params.after {
        Some(_) => None,
        None => Some(params.before.unwrap_or(i64::MAX)),
    };
    let AuditParams { actor, target, org, after, .. } = params;
    let filter = AuditFilter { actor, target, org, after: after.unwrap_or(0), before };
    let entries = app.store.audit(&filter, limit).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.seq);
    Ok(Json(AuditPage { entries, next }))
}

/// Heads of both logs: the number of the last event, and number and hash of the last audit entry.
#[utoipa::path(get, path = "/api/v1/audit/head", tag = "audit", responses((status = 200, body = LogHeads)))]
async fn head(State(app): State<App>) -> Result<Json<LogHeads>> {
    Ok(Json(app.store.head().await?))
}
