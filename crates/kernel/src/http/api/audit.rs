//! `/api/v1/audit`: who did what. A client verifies the hash chain itself: it reads the entries with
//! `?after=` and compares the last with `/api/v1/audit/head`. It archives them itself, too: when its
//! copy is safe, `/api/v1/audit/archive` closes the log at the last entry of the copy.

use async_trait::async_trait;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{CommandRequest, Params, Routes};
use super::limit;
use crate::change::{Change, EventDraft};
use crate::command::{AuditFields, Command, CommandContext, Decided};
use crate::identity::Action;
use crate::log::{AuditEntry, AuditFilter, AuditPosition, LogHeads};
use crate::{App, Error, Key, Result};

const LIMIT_MAX: usize = 1000;

pub(super) fn routes() -> Routes {
    Routes::new()
        .route(Action::AdminRead, routes!(list))
        .route(Action::AdminRead, routes!(head))
        .command(Archive, routes!(archive))
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
    /// Entries up to this one are in an archive, and not among these.
    #[serde(skip_serializing_if = "Option::is_none")]
    archived: Option<i64>,
}

/// Audit entries, newest first.
///
/// Oldest first if `after` is given.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditParams),
    responses((status = 200, body = AuditPage),
        (status = 410, description = "The entries are in an archive; `oldest` is the first that is not")))]
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
    let archived = app.store.head().await?.archived.seq;
    let below = params.after.is_some_and(|after| after < archived)
        || params.before.is_some_and(|before| before <= archived + 1);
    if archived > 0 && below {
        let what = format!("the audit log up to entry {archived} was archived and");
        return Err(Error::Gone { what, oldest: archived + 1 });
    }
    let AuditParams { actor, target, org, after, .. } = params;
    let after = after.unwrap_or(0).max(archived);
    let filter = AuditFilter { actor, target, org, after, before };
    let entries = app.store.audit(&filter, limit).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.seq);
    let archived = Some(archived).filter(|seq| *seq > 0);
    Ok(Json(AuditPage { entries, next, archived }))
}

/// Heads of both logs: the number of the last event, and number and hash of the last audit entry.
#[utoipa::path(get, path = "/api/v1/audit/head", tag = "audit", responses((status = 200, body = LogHeads)))]
async fn head(State(app): State<App>) -> Result<Json<LogHeads>> {
    Ok(Json(app.store.head().await?))
}

/// Close the audit log at an entry
///
/// The entries up to it are no longer kept: send this when an archive has them and was verified, as
/// `mainstay audit archive` does. The chain of hashes continues from the entry.
#[utoipa::path(post, path = "/api/v1/audit/archive", tag = "audit", request_body = AuditPosition,
    responses((status = 200, body = LogHeads)))]
async fn archive(command: CommandRequest) -> Result<Response> {
    command.execute(Archive::NAME, None).await
}

struct Archive;

#[async_trait]
impl Command for Archive {
    const NAME: &'static str = "audit.archive";
    const ACTION: Action = Action::AdminFull;
    type Body = AuditPosition;
    type Reply = LogHeads;

    async fn decide(
        &self,
        cx: &CommandContext<'_>,
        last: AuditPosition,
    ) -> Result<Decided<LogHeads>> {
        let mut head = cx.app.store.head().await?;
        if last == head.archived {
            return Ok(Decided::new(200, head, None));
        }
        if last.seq <= head.archived.seq {
            let message =
                format!("must be above {}: the log is archived up to there", head.archived.seq);
            return Err(Error::invalid("seq", message));
        }
        // An entry never changes, so it need not be checked again when this is committed.
        let filter = AuditFilter { after: last.seq - 1, ..AuditFilter::default() };
        let entry = cx.app.store.audit(&filter, 1).await?.pop();
        match entry.filter(|entry| entry.seq == last.seq) {
            None => {
                let message =
                    format!("is not the number of an entry: the last is {}", head.audit_seq);
                return Err(Error::invalid("seq", message));
            }
            Some(entry) if entry.hash != last.hash => {
                let message = format!("is not the hash of entry {}", last.seq);
                return Err(Error::invalid("hash", message));
            }
            Some(_) => {}
        }
        let data = Some(crate::Json::encode(&last));
        let audit = AuditFields {
            target: "audit".into(),
            before: crate::Json::encode(&head.archived),
            after: crate::Json::encode(&last),
            ..AuditFields::default()
        };
        head.archive(&last);
        let event = EventDraft {
            kind: "mainstay.audit.archived".into(),
            subject: Key::new("audit", "log"),
            org: String::new(),
            data,
        };
        let (event, audit_archived) = (Some(event), Some(last));
        let change = Change { event, audit_archived, ..Change::default() };
        Ok(Decided::new(200, head, audit).change(change))
    }
}
