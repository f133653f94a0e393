//! Routes: create, change and delete widgets. Reading them is the kernel's `/api/v1/objects`.

use axum::extract::State;
use axum::response::Response;
use kernel::change::CommandReply;
use kernel::http::{
    Body, Caller, Context, Idempotency, Idempotent, PathId, RequestContext, Routes,
    commit_idempotent, valid_name,
};
use kernel::identity::{Action, Principal};
use kernel::{App, Change, Error, Json, Key, Labels, Object, Refusal, Result};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::commands;
use super::model::{KIND, Request, Spec};

pub fn routes() -> Routes {
    Routes::new()
        .route(Action::Write, routes!(create))
        .route(Action::Write, routes!(change))
        .route(Action::Write, routes!(delete))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewWidget {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    size: u32,
    /// Keys of other widgets, as `widget/ID`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    depends_on: Vec<Key>,
    /// How many attempts fail before one succeeds.
    #[serde(default)]
    fail_times: i32,
    /// How many attempts panic before one succeeds.
    #[serde(default)]
    panic_times: i32,
    /// Fails permanently, with this reason.
    broken: Option<String>,
}

/// Creates a widget.
#[utoipa::path(post, path = "/api/v1/widgets", tag = "widgets", request_body = NewWidget,
    responses((status = 202, body = Object)))]
async fn create(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    idempotency: Idempotency,
    body: Body<NewWidget>,
) -> Result<Response> {
    let idempotent = idempotency.of(&body.bytes);
    let work = async {
        let request = request(&app, &who, body.value)?;
        let (mut change, object) =
            commands::create(app.store.as_ref(), request, app.ambient.now()).await?;
        let mut audit = context.audit(&who, "widget.create", object.key.as_str(), &object.org);
        audit.after = object.spec.clone();
        change.audit = Some(audit);
        accept(&app, &idempotent, change, &object).await
    };
    idempotent.run(app.store.as_ref(), work).await
}

fn request(app: &App, who: &Principal, new: NewWidget) -> Result<Request> {
    valid_name("name", &new.name)?;
    let NewWidget { name, description, labels, size, depends_on, fail_times, panic_times, broken } =
        new;
    let spec = Spec { size, fail_times, panic_times, broken, deleting: false };
    let (id, org, owner) = (app.ambient.id(), who.org.clone(), who.subject.clone());
    Ok(Request { id, org, owner, name, description, labels, spec, depends_on })
}

async fn accept(
    app: &App,
    idempotent: &Idempotent,
    change: Change,
    object: &Object,
) -> Result<Response> {
    let reply = CommandReply { status: 202, body: Json::encode(object) };
    commit_idempotent(app, idempotent, change, reply).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WidgetChange {
    size: u32,
}

/// Changes a widget's size.
#[utoipa::path(patch, path = "/api/v1/widgets/{id}", tag = "widgets", request_body = WidgetChange,
    params(("id" = String, Path)), responses((status = 202, body = Object)))]
async fn change(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    PathId(id): PathId,
    idempotency: Idempotency,
    body: Body<WidgetChange>,
) -> Result<Response> {
    let idempotent = idempotency.of(&body.bytes);
    edit(&app, &who, &context, &id, idempotent, commands::resize(body.value.size)).await
}

/// Deletes a widget, once nothing depends on it any more.
#[utoipa::path(delete, path = "/api/v1/widgets/{id}", tag = "widgets",
    params(("id" = String, Path)), responses((status = 202, body = Object)))]
async fn delete(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    PathId(id): PathId,
    idempotency: Idempotency,
) -> Result<Response> {
    edit(&app, &who, &context, &id, idempotency.of(b""), commands::delete()).await
}

/// Commits a command that edits the spec; repeats it if another writer came in between.
async fn edit(
    app: &App,
    who: &Principal,
    context: &RequestContext,
    id: &str,
    idempotent: Idempotent,
    edit: impl Fn(Spec) -> Spec,
) -> Result<Response> {
    let key = Key::parse(&format!("{KIND}/{id}"))?;
    loop {
        let work = async {
            let now = app.ambient.now();
            let (mut change, before) =
                commands::edit(app.store.as_ref(), who, &key, &edit, now).await?;
            let after = change.write.as_ref().map_or(&before, |write| write.object()).clone();
            if let Some(audit) = &mut change.audit {
                let mut written = context.audit(who, &audit.action, key.as_str(), &before.org);
                (written.before, written.after) = (before.spec.clone(), after.spec.clone());
                *audit = written;
            }
            accept(app, &idempotent, change, &after).await
        };
        match idempotent.run(app.store.as_ref(), work).await {
            Err(Error::Refused(Refusal::Stale { .. })) => {}
            done => return done,
        }
    }
}
