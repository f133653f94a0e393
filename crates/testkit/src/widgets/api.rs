//! Routes: create, change and delete widgets. Reading them is the kernel's `/api/v1/objects`.

use axum::response::Response;
use kernel::command::Command as _;
use kernel::http::{CommandRequest, PathId, Routes};
use kernel::{Key, Result};
use utoipa_axum::routes;

use super::commands::{Create, Delete, NewWidget, Resize, WidgetChange};
use super::model::KIND;

pub fn routes() -> Routes {
    Routes::new()
        .command(Create, routes!(create))
        .command(Resize, routes!(change))
        .command(Delete, routes!(delete))
}

/// Creates a widget.
#[utoipa::path(post, path = "/api/v1/widgets", tag = "widgets", request_body = NewWidget,
    responses((status = 202, body = kernel::Object)))]
async fn create(command: CommandRequest) -> Result<Response> {
    command.execute(Create::NAME, None).await
}

/// Changes a widget's size.
#[utoipa::path(patch, path = "/api/v1/widgets/{id}", tag = "widgets", request_body = WidgetChange,
    params(("id" = String, Path)), responses((status = 202, body = kernel::Object)))]
async fn change(PathId(id): PathId, command: CommandRequest) -> Result<Response> {
    command.execute(Resize::NAME, Some(key(&id)?)).await
}

/// Deletes a widget, once nothing depends on it any more.
#[utoipa::path(delete, path = "/api/v1/widgets/{id}", tag = "widgets",
    params(("id" = String, Path)), responses((status = 202, body = kernel::Object)))]
async fn delete(PathId(id): PathId, command: CommandRequest) -> Result<Response> {
    command.execute(Delete::NAME, Some(key(&id)?)).await
}

fn key(id: &str) -> Result<Key> {
    Key::parse(&format!("{KIND}/{id}"))
}
