//! `/api/v1/commands`: every command of every domain, by its name.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::super::command_request::{respond, sender};
use super::super::{Body, Context, Routes};
use crate::command::{Envelope, Origin};
use crate::identity::Action;
use crate::{App, Result};

pub(super) fn routes() -> Routes {
    Routes::new().route(Action::Read, routes!(list)).route(Action::Write, routes!(execute))
}

#[derive(Serialize, ToSchema)]
struct CommandList {
    commands: Vec<String>,
}

/// The names of all commands.
#[utoipa::path(get, path = "/api/v1/commands", tag = "commands",
    responses((status = 200, body = CommandList)))]
async fn list(State(app): State<App>) -> Json<CommandList> {
    Json(CommandList { commands: app.commands().names() })
}

/// Carries out a command.
///
/// The same as the command's own route, and as the same command over the bus: one with the same id is
/// carried out once. The sender needs the permission of the command.
#[utoipa::path(post, path = "/api/v1/commands", tag = "commands", request_body = Envelope,
    responses((status = 200, description = "What the command replies, with its status")))]
async fn execute(
    State(app): State<App>,
    Context(context): Context,
    body: Body<Envelope>,
) -> Result<Response> {
    let origin = Origin::Http(context.origin);
    let sender = sender(&context, &origin)?;
    Ok(respond(app.commands().execute(&app, sender, &body.value).await?))
}
