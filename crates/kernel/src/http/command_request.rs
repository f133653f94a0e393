//! A request that carries a command.

use std::sync::Arc;

use axum::RequestExt as _;
use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::context::{Context, RequestContext};
use super::extract::{check_content_type, read_body};
use super::input_errors;
use crate::command::{self, Answer, AnyCommand, Envelope, Origin, Sender};
use crate::{App, Error, Json, Key, Result};

const KEY_CHARS_MAX: usize = 255;

/// Extracts who sends a command, and its `Idempotency-Key`.
#[derive(Clone)]
pub struct CommandSender {
    pub app: App,
    pub context: Arc<RequestContext>,
    id: Option<String>,
}

impl CommandSender {
    pub(super) fn new(
        app: &App,
        context: &Arc<RequestContext>,
        headers: &HeaderMap,
    ) -> Result<CommandSender> {
        let id = idempotency_key(headers)?;
        Ok(CommandSender { app: app.clone(), context: context.clone(), id })
    }

    /// Carries out a command, once for each `Idempotency-Key`.
    pub async fn execute(
        &self,
        command: &dyn AnyCommand,
        subject: Option<Key>,
        body: Json,
    ) -> Result<Answer> {
        let envelope =
            Envelope { id: self.id.clone(), ..Envelope::new(command.name(), subject, body) };
        let origin = Origin::Http(self.context.origin);
        let sender = sender(&self.context, &origin)?;
        command::execute(&self.app, command, sender, &envelope).await
    }
}

impl FromRequestParts<App> for CommandSender {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<CommandSender> {
        let Context(context) = Context::from_request_parts(parts, app).await?;
        CommandSender::new(app, &context, &parts.headers)
    }
}

/// Extracts a command whose body is the request's. A request without a body has an empty one.
pub struct CommandRequest {
    sender: CommandSender,
    body: Json,
}

impl FromRequest<App> for CommandRequest {
    type Rejection = Error;
    async fn from_request(mut request: Request, app: &App) -> Result<CommandRequest> {
        let sender: CommandSender = request.extract_parts_with_state(app).await?;
        let body = if request.body().is_end_stream() {
            Json::default()
        } else {
            check_content_type(request.headers())?;
            input_errors::json(&read_body(&sender.context, request.into_body()).await?)?
        };
        Ok(CommandRequest { sender, body })
    }
}

impl CommandRequest {
    /// Carries out the command of this name.
    pub async fn execute(self, name: &str, subject: Option<Key>) -> Result<Response> {
        let missing = || Error::internal(format!("command {name}"), "it is not registered");
        let command = self.sender.app.commands().find(name).ok_or_else(missing)?;
        Ok(respond(self.sender.execute(&*command, subject, self.body).await?))
    }
}

/// The caller of a request as the sender of a command.
pub(super) fn sender<'a>(context: &'a RequestContext, origin: &'a Origin) -> Result<Sender<'a>> {
    Ok(Sender {
        principal: context.caller()?,
        origin,
        request_id: &context.request_id,
        trace: Some(context.trace),
    })
}

/// The request's `Idempotency-Key`, if it has one.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().unwrap_or("");
    if key.is_empty() || key.len() > KEY_CHARS_MAX || !key.bytes().all(|b| b.is_ascii_graphic()) {
        let message = format!("must be 1 to {KEY_CHARS_MAX} visible ASCII characters");
        return Err(Error::invalid("idempotency-key", message));
    }
    Ok(Some(key.to_owned()))
}

/// Responds with the reply to a command.
pub fn respond(answer: Answer) -> Response {
    respond_with(&answer, |status, body| {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        if status == StatusCode::NO_CONTENT {
            return status.into_response();
        }
        let json = HeaderValue::from_static("application/json");
        (status, [(header::CONTENT_TYPE, json)], Body::from(body)).into_response()
    })
}

/// Responds with the reply to a command as `write` writes it, and says if it was carried out before.
pub fn respond_with(answer: &Answer, write: impl Fn(u16, Vec<u8>) -> Response) -> Response {
    let mut response = write(answer.reply.status, answer.reply.body.text().into());
    if answer.replayed {
        let name = HeaderName::from_static("idempotent-replay");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}
