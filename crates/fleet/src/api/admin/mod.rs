//! The admins' API: instances of every organisation. Every call is audited before anything else,
//! even if it fails; a change is audited again with what it changed.

use std::sync::Arc;

use axum::response::Response;
use kernel::identity::Principal;
use kernel::{Json, Result};
use serde_json::{Value, json};

use crate::api::kind_api::Call;
use crate::api::public::{instances, list};
use crate::api::wire::reply;
use crate::api::wire::request::{read_payload, require_async};
use crate::commands::instance::Verb;
use crate::model::admin_patch::AdminPatch;
use crate::model::error_code::ErrorCode;
use crate::model::instance::Instance;
use crate::store::index::{Row, Scope};

pub async fn list(call: Call, who: Arc<Principal>) -> Result<Response> {
    let query = call.parts.uri.query().unwrap_or_default();
    record(&call, &who, "list", None, &json!({ "query": query })).await?;
    call.fleet.index.catch_up().await?;
    list::render(&call, &Scope::All, &call.kind.file.admin_list, &call.kind.admin)
}

pub async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    let row = audited_instance(&call, &who, "get", &Value::Null).await?;
    Ok(respond(&call, &row.instance))
}

pub async fn patch(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    let (body, payload) = instances::read(&mut call).await?;
    let patch = AdminPatch::from_payload(&call.kind, &payload)?;
    record_about(&call, &who, "patch", &patch.audit_entry()).await?;
    let answer = instances::execute(&call, Verb::AdminPatch, body).await?;
    Ok(reply::of(&answer, reply::json_line))
}

pub async fn delete(call: Call, who: Arc<Principal>) -> Result<Response> {
    require_async(&call)?;
    record_about(&call, &who, "delete", &Value::Null).await?;
    let answer = instances::execute(&call, Verb::AdminDelete, Json::default()).await?;
    Ok(reply::of(&answer, reply::json_line))
}

/// The largest reason of RFC 5280, which does not use 7.
const REVOCATION_REASON_MAX: i64 = 10;

/// Records the request only: all instances share one certificate, so there is none to revoke.
pub async fn revoke(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    let body = read_payload(&mut call).await?;
    let reason = body.integer("revocation_reason")?.unwrap_or(0);
    let asked = json!({ "revocation_reason": reason, "revoked": "no certificate of its own" });
    let row = audited_instance(&call, &who, "revoke_tls_certificate", &asked).await?;
    if !(0..=REVOCATION_REASON_MAX).contains(&reason) || reason == 7 {
        let why = format!("revocation_reason must be 0 to 6 or 8 to 10 (RFC 5280), not {reason}");
        return Err(ErrorCode::BadRequest.error(why));
    }
    let key = row.instance.key();
    tracing::warn!(%key, reason, "no certificate revoked: the instance has none of its own");
    Ok(reply::empty(204))
}

fn respond(call: &Call, instance: &Instance) -> Response {
    let view = call.fleet.scope(&call.kind, instance, None);
    reply::json_line(200, call.kind.admin.render(&view))
}

/// Returns the instance of the path, of any organisation. Audited even if it does not exist.
async fn audited_instance(
    call: &Call,
    who: &Principal,
    action: &str,
    asked: &Value,
) -> Result<Arc<Row>> {
    let row = record_about(call, who, action, asked).await?;
    row.ok_or_else(|| {
        let (resource, id) = (&call.kind.file.resource, call.param("id"));
        ErrorCode::NotFound.error(format!("{resource} with id='{id}' not found"))
    })
}

/// Audits a call about the instance of the path, and returns the instance if there is one.
async fn record_about(
    call: &Call,
    who: &Principal,
    action: &str,
    asked: &Value,
) -> Result<Option<Arc<Row>>> {
    call.fleet.index.catch_up().await?;
    let row = call.fleet.index.get(call.kind.name(), call.param("id"));
    record(call, who, action, row.as_deref(), asked).await?;
    Ok(row)
}

async fn record(
    call: &Call,
    who: &Principal,
    action: &str,
    row: Option<&Row>,
    asked: &Value,
) -> Result<()> {
    let kind = call.kind.name();
    let target = match call.param("id") {
        "" => call.kind.file.plural.clone(),
        id => format!("{kind}/{id}"),
    };
    let org = row.map_or("", |row| &row.instance.org);
    let mut audit = call.context.audit(who, &format!("{kind}.admin.{action}"), &target, org);
    audit.outcome = "asked".into();
    if !asked.is_null() {
        audit.after = Json::encode(asked);
    }
    call.fleet.record(audit).await
}
