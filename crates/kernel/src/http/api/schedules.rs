//! `/api/v1/schedules`: creates and deletes schedules. Reading them is `/api/v1/objects`.

use axum::response::Response;
use utoipa_axum::routes;

use super::super::{CommandRequest, PathId, Routes};
use crate::command::Command as _;
use crate::schedule::{Create, Delete, KIND, NewSchedule};
use crate::{Key, Result};

pub(super) fn routes() -> Routes {
    Routes::new().command(Create, routes!(create)).command(Delete, routes!(delete))
}

/// Creates a schedule: a command that is carried out at certain times, as its maker but without admin
/// roles, once for each planned time.
#[utoipa::path(post, path = "/api/v1/schedules", tag = "commands", request_body = NewSchedule,
    responses((status = 201, body = crate::Object)))]
async fn create(command: CommandRequest) -> Result<Response> {
    command.execute(Create::NAME, None).await
}

/// Deletes a schedule.
#[utoipa::path(delete, path = "/api/v1/schedules/{id}", tag = "commands",
    params(("id" = String, Path)), responses((status = 200, body = crate::Object)))]
async fn delete(PathId(id): PathId, command: CommandRequest) -> Result<Response> {
    command.execute(Delete::NAME, Some(Key::parse(&format!("{KIND}/{id}"))?)).await
}
