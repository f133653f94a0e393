//! `/api/v1/commands`: every command of every domain, by its name.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::command_request::{respond, sender};
use super::super::{Body, Caller, Context, Params, PathId, Routes};
use crate::command::{self, CommandStatus, Envelope, Origin};
use crate::identity::{Action, Principal};
use crate::{App, Error, Result};

pub(super) fn routes() -> Routes {
    Routes::new()
        .route(Action::Read, routes!(list))
        .route(Action::Write, routes!(execute))
        .route(Action::Read, routes!(status))
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

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StatusParams {
    /// Admins only: the sender of the command. By default the caller.
    subject: Option<String>,
    /// Admins only: the issuer of that sender; `bus` for one that the bus' configuration names.
    issuer: Option<String>,
}

/// How a command went, whichever way it came.
///
/// Known for as long as command records are kept (`retention.commands_days`).
#[utoipa::path(get, path = "/api/v1/command/{id}", tag = "commands",
    params(("id" = String, Path, description = "As the sender chose it"), StatusParams),
    responses((status = 200, body = CommandStatus)))]
async fn status(
    State(app): State<App>,
    Caller(who): Caller,
    PathId(id): PathId,
    Params(params): Params<StatusParams>,
) -> Result<Json<CommandStatus>> {
    let mut sender = Principal::clone(&who);
    if params.subject.is_some() || params.issuer.is_some() {
        if !who.is_admin() {
            return Err(Error::Forbidden("subject: only your own commands".into()));
        }
        sender.subject = params.subject.unwrap_or(sender.subject);
        sender.issuer = params.issuer.unwrap_or(sender.issuer);
    }
    Ok(Json(command::status(&app, &sender, &id).await?))
}
