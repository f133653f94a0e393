//! Instances: create, read, change, delete, promote.

use std::sync::Arc;

use axum::response::Response;
use kernel::command::Answer;
use kernel::identity::Principal;
use kernel::{Json, Key, Result};

use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::api::wire::request::require_async;
use crate::commands::instance::{InstanceCommand, InstanceUpdate, Verb, read_promotion};
use crate::model::error_code::ErrorCode;
use crate::model::instance::Instance;
use crate::model::payload::{Payload, parse_object};
use crate::model::template_scope::InstanceScope;
use crate::store::access::can_see;
use crate::store::index::Row;

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

pub async fn create(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let (body, _) = read(&mut call).await?;
    require_async(&call)?;
    let answer = execute(&call, Verb::Create, body).await?;
    Ok(reply::of(&answer, reply::json_line))
}

pub async fn patch(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let (body, payload) = read(&mut call).await?;
    InstanceUpdate::read(&call.kind, &payload)?;
    let answer = execute(&call, Verb::Update, body).await?;
    Ok(reply::of(&answer, reply::json_line))
}

pub async fn delete(call: Call, _: Arc<Principal>) -> Result<Response> {
    require_async(&call)?;
    let answer = execute(&call, Verb::Delete, Json::default()).await?;
    Ok(reply::of(&answer, reply::json_line))
}

pub async fn promote(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let (body, payload) = read(&mut call).await?;
    require_async(&call)?;
    read_promotion(&call.kind, &payload)?;
    let answer = execute(&call, Verb::Promote, body).await?;
    Ok(reply::of(&answer, |status, _| reply::empty(status)))
}

/// Reads the body of a command.
pub async fn read(call: &mut Call) -> Result<(Json, Payload)> {
    let bytes = call.bytes().await?;
    let payload = Payload(parse_object(&bytes)?);
    Ok((Json::encode(&payload.0), payload))
}

/// Carries out a command of the kind, about the instance of the path if there is one.
pub async fn execute(call: &Call, verb: Verb, body: Json) -> Result<Answer> {
    let command = InstanceCommand::new(&call.fleet, &call.catalogue, &call.kind, verb);
    let key = || Key::parse(&format!("{}/{}", call.kind.name(), call.param("id")));
    let subject = match call.param("id") {
        "" => None,
        // An id that no instance can have.
        id => Some(key().unwrap_or_else(|_| Key::new(call.kind.name(), id))),
    };
    call.sender()?.execute(&command, subject, body).await
}
