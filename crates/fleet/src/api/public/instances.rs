//! One instance: read, change, delete, promote.

use std::sync::Arc;

use axum::response::Response;
use kernel::change::{EventDraft, Write};
use kernel::identity::Principal;
use kernel::{Change, Error, Key, Object, Result, Timestamp};
use serde_json::json;

use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::api::wire::request::{read_payload, require_async};
use crate::decide::instance::lifecycle::Event;
use crate::decide::instance::{instance_change, transition};
use crate::decide::promotion;
use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Promotion};
use crate::model::payload::{check_field, check_length};
use crate::model::template_scope::InstanceScope;
use crate::store::index::Row;

/// Whether the instance is visible to the caller: their organisation's, or their own without one.
pub fn can_see(who: &Principal, instance: &Instance) -> bool {
    match who.org.as_str() {
        "" => instance.org.is_empty() && instance.owner == who.subject,
        org => instance.org == org,
    }
}

/// Returns the instance of the path, if it is visible to the caller.
pub async fn visible(call: &Call, who: &Principal) -> Result<Arc<Row>> {
    call.fleet.index.catch_up().await?;
    let id = call.param("id");
    let row = call.fleet.index.get(call.kind.name(), id);
    row.filter(|row| can_see(who, &row.instance)).ok_or_else(|| {
        let resource = &call.kind.file.resource;
        let user = &who.subject;
        ErrorCode::NotFound.error(format!("{resource} for user {user} with id='{id}' not found"))
    })
}

/// Returns the instance of the path, if the caller may change it.
async fn changeable(call: &Call, who: &Principal) -> Result<Arc<Row>> {
    let row = visible(call, who).await?;
    if !who.org_admin && row.instance.owner != who.subject {
        return Err(ErrorCode::Unauthorized.error("User not authorized to perform this action"));
    }
    Ok(row)
}

pub async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    let row = visible(&call, &who).await?;
    let render =
        || reply::append_newline(call.kind.response.render(&scope(&call, &row.instance))).into();
    let bytes = call.fleet.rendered.get(&call.kind, &row, render);
    Ok(reply::json_body(200, bytes))
}

fn scope<'c>(call: &'c Call, instance: &'c Instance) -> InstanceScope<'c> {
    call.fleet.scope(&call.kind, instance, None)
}

fn respond(call: &Call, status: u16, instance: &Instance) -> Response {
    reply::json_line(status, call.kind.response.render(&scope(call, instance)))
}

pub async fn patch(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    let body = read_payload(&mut call).await?;
    let owner = body.text("owner")?.map(str::to_owned);
    if let Some(owner) = &owner {
        check_length("owner", owner, 1, 255)?;
    }
    let mut fields = Vec::new();
    for (name, field) in call.kind.file.fields.iter().filter(|(_, field)| field.patch) {
        if let Some(value) = body.0.get(name).filter(|value| !value.is_null()) {
            check_field(name, field, value)?;
            fields.push((name.clone(), value.clone()));
        }
    }
    let row = changeable(&call, &who).await?;
    if let (Some(owner), Some(ams)) = (&owner, &call.fleet.ports.ams)
        && *owner != row.instance.owner
    {
        let account = ams.account(owner).await?;
        if account.is_none_or(|account| account.banned || account.org != who.org) {
            let why = format!("user {owner} is not a member of the organisation");
            return Err(ErrorCode::BadRequest.error(why));
        }
    }
    let after = edit(&call, &who, &row.instance.key(), "update", |instance, object, now| {
        let mut next = instance.clone();
        next.owner = owner.clone().unwrap_or(next.owner);
        next.spec.fields.extend(fields.iter().cloned());
        if next == *instance {
            return Ok((Change::default(), next));
        }
        let change = instance_change(object, &next, "updated", now);
        Ok((change, next))
    })
    .await?;
    Ok(respond(&call, 200, &after))
}

pub async fn delete(call: Call, who: Arc<Principal>) -> Result<Response> {
    require_async(&call)?;
    call.fleet.index.catch_up().await?;
    let id = call.param("id").to_owned();
    let row = call.fleet.index.get(call.kind.name(), &id);
    let may = |instance: &Instance| {
        can_see(&who, instance) && (who.org_admin || instance.owner == who.subject)
    };
    let row = row.filter(|row| may(&row.instance)).ok_or_else(|| {
        ErrorCode::NotFound.error(format!("{} with id='{id}' not found", call.kind.file.resource))
    })?;
    request_delete(&call, &who, &row.instance.key()).await
}

/// Requests the deletion of an instance. The body satisfies every generated client.
pub async fn request_delete(call: &Call, who: &Principal, key: &Key) -> Result<Response> {
    edit(call, who, key, "delete", |instance, object, now| {
        let (mut change, next) = transition(object, instance, Event::Delete, now);
        change.wakes.push(instance.wake(now));
        Ok((change, next))
    })
    .await?;
    let kind = &call.kind;
    let id = call.param("id");
    let body = json!({
        "reason": format!("{} is being deleted", kind.file.title),
        "operation_id": call.context.request_id,
        "id": id,
        "kind": kind.file.title,
        "href": kind.file.href(id),
        "code": format!("{}-0", kind.file.codes),
    });
    Ok(reply::json(202, &body))
}

pub async fn promote(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    let body = read_payload(&mut call).await?;
    require_async(&call)?;
    let field = call.kind.promotion_field();
    let to = body.text(&field)?.or(body.text("desired_billing_model")?);
    let to = to.unwrap_or_default().to_owned();
    check_length(&field, &to, 1, 64)?;
    let text = |name: &str| Ok::<_, Error>(body.text(name)?.unwrap_or_default().to_owned());
    let marketplace = text("desired_marketplace")?;
    let billing_cloud_account_id = text("desired_billing_cloud_account_id")?;
    let row = changeable(&call, &who).await?;
    let promotion = Promotion { to, marketplace, billing_cloud_account_id, failed: String::new() };
    edit(&call, &who, &row.instance.key(), "promote", |instance, object, now| {
        promotion::check(&call.kind, instance, &promotion)?;
        let mut next = instance.clone();
        next.spec.promotion = Some(promotion.clone());
        let mut change = instance_change(object, &next, "promoting", now);
        change.wakes.push(instance.wake(now));
        Ok((change, next))
    })
    .await?;
    Ok(reply::empty(202))
}

/// Changes an instance; reads it again after a concurrent write. A change without a write is not
/// committed.
pub async fn edit(
    call: &Call,
    who: &Principal,
    key: &Key,
    action: &str,
    change: impl Fn(&Instance, &Object, Timestamp) -> Result<(Change, Instance)>,
) -> Result<Instance> {
    let edited = |there: Option<&Object>, now: Timestamp| {
        let object = there.filter(|object| object.deleted_at.is_none());
        let object = object.ok_or_else(|| ErrorCode::NotFound.default_error())?;
        let instance = Instance::from_object(object)?;
        let (mut wanted, mut after) = change(&instance, object, now)?;
        let Some(write) = wanted.write.take() else { return Ok((None, instance)) };
        let mut written = write.object().clone();
        written.generation += 1;
        let action = format!("{}.{action}", key.kind());
        let mut audit = call.context.audit(who, &action, key.as_str(), &object.org);
        (audit.before, audit.after) = (object.spec.clone(), written.spec.clone());
        wanted.audit = Some(audit);
        if wanted.event.is_none() {
            wanted.event = Some(EventDraft::for_object(&written, "updated"));
        }
        wanted.write = Some(Write::Update(written));
        after.updated_at = now;
        Ok((Some(wanted), after))
    };
    call.fleet.edit(key, edited).await
}
