//! Routes: create, change and delete widgets. Reading them is the kernel's `/api/v1/objects`.

use axum::extract::State;
use axum::response::Response;
use kernel::change::CommandReply;
use kernel::http::{
    Body, Caller, Context, Idempotency, PathId, Routes, can_see, commit_idempotent, valid_name,
};
use kernel::identity::{Action, Principal};
use kernel::{App, Error, Json, Key, Labels, Object, Result};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::model::{self, KIND, Request, Spec};

/// Widgets that an organisation may have.
pub const QUOTA: i64 = 1_000_000;

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
    /// How many looks fail before one succeeds.
    #[serde(default)]
    fail_times: i32,
    /// How many looks panic before one succeeds.
    #[serde(default)]
    panic_times: i32,
    /// Fails for good, with this reason.
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
        let dependencies = app.store.get(&request.depends_on).await?;
        let (mut change, object) = model::create(request, &dependencies, QUOTA, app.ambient.now())?;
        let audit = context.audit(&who, "widget.create", object.key.as_str(), &object.org);
        change.audit = Some(kernel::change::AuditDraft { after: object.spec.clone(), ..audit });
        commit_idempotent(
            &app,
            &idempotent,
            change,
            CommandReply { status: 202, body: Json::encode(&object) },
        )
        .await
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
    let size = body.value.size;
    let wish = |before: Spec| Spec { size, ..before };
    respec(&app, &who, &context, &id, idempotency.of(&body.bytes), wish).await
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
    let wish = |before: Spec| Spec { deleting: true, ..before };
    respec(&app, &who, &context, &id, idempotency.of(b""), wish).await
}

/// Writes a widget's new spec; reads again if someone else wrote meanwhile.
async fn respec(
    app: &App,
    who: &Principal,
    context: &kernel::http::RequestContext,
    id: &str,
    idempotent: kernel::http::Idempotent,
    wish: impl Fn(Spec) -> Spec,
) -> Result<Response> {
    let key = Key::parse(&format!("{KIND}/{id}"))?;
    loop {
        let work = write(app, who, context, &key, &idempotent, &wish);
        match idempotent.run(app.store.as_ref(), work).await {
            Err(Error::Refused(kernel::Refusal::Stale { .. })) => {}
            done => return done,
        }
    }
}

async fn write(
    app: &App,
    who: &Principal,
    context: &kernel::http::RequestContext,
    key: &Key,
    idempotent: &kernel::http::Idempotent,
    wish: impl Fn(Spec) -> Spec,
) -> Result<Response> {
    let object = visible(app, who, key).await?;
    let spec = wish(model::spec(&object)?);
    let mut change = model::respec(&object, &who.subject, &spec, app.ambient.now())?;
    let action = if spec.deleting { "widget.delete" } else { "widget.update" };
    let mut audit = context.audit(who, action, key.as_str(), &object.org);
    (audit.before, audit.after) = (object.spec.clone(), Json::encode(&spec));
    change.audit = Some(audit);
    let after = change.write.as_ref().map(|write| write.object().clone()).unwrap_or(object);
    let answer = CommandReply { status: 202, body: Json::encode(&after) };
    commit_idempotent(app, idempotent, change, answer).await
}

async fn visible(app: &App, who: &Principal, key: &Key) -> Result<Object> {
    let found = app.store.get(std::slice::from_ref(key)).await?.pop();
    let found = found.filter(|object| object.deleted_at.is_none() && can_see(who, object));
    found.ok_or_else(|| Error::NotFound(key.to_string()))
}
