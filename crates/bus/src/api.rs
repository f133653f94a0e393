//! `/api/v1/sinks`: where events go, and how far they are.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use kernel::command::Command as _;
use kernel::http::{Caller, CommandRequest, PathId, Routes, can_see, restrict};
use kernel::identity::Action;
use kernel::log::EventFilter;
use kernel::{App, Error, Key, Object, ObjectQuery, Result, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::commands::{Create, Delete, NewWebhook, Replay, ReplayFrom, Resume, ResumeHow};
use crate::config::{Config, Filter, Mode};
use crate::model::{Cursor, Gap, KIND, ParkedEvent, Position, Sink, Transport};
use crate::store;

/// Sinks per read.
const PAGE: usize = 500;

pub fn routes(config: &Config) -> Routes {
    let create = Create { per_organisation_max: config.webhooks.per_organisation_max };
    Routes::new()
        .route(Action::Read, routes!(list))
        .route(Action::Read, routes!(get))
        .command(create, routes!(create_webhook))
        .command(Delete, routes!(delete))
        .command(Resume, routes!(resume))
        .command(Replay, routes!(replay))
}

/// A sink, and how far it is.
#[derive(Debug, Serialize, ToSchema)]
struct SinkView {
    id: String,
    name: String,
    /// Empty for sinks of the configuration.
    org: String,
    transport: Transport,
    /// Where events go: the URL of a webhook, or brokers and topic or exchange.
    target: String,
    filter: Filter,
    mode: Mode,
    /// `running`, `failing`, `parked` (waits for a person) or `off` (no longer configured).
    phase: String,
    #[schema(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// Why it is failing or parked.
    reason: String,
    /// Up to where events are delivered; none before its first start.
    position: Option<Position>,
    /// How many events of all kinds and organisations come after it.
    lag_events: i64,
    /// How long the oldest of them waits.
    lag_s: f64,
    /// Events that could not be delivered and were skipped: `resume` sends them again.
    parked: Vec<ParkedEvent>,
    /// Events that were purged before they were delivered.
    gaps: Vec<Gap>,
}

#[derive(Debug, Serialize, ToSchema)]
struct SinkList {
    sinks: Vec<SinkView>,
    /// The number of the newest event.
    newest: i64,
}

/// The sinks that you may see, and how far they are.
#[utoipa::path(get, path = "/api/v1/sinks", tag = "bus",
    responses((status = 200, body = SinkList)))]
async fn list(State(app): State<App>, Caller(who): Caller) -> Result<Json<SinkList>> {
    let query = ObjectQuery { kind: Some(KIND.into()), limit: PAGE, ..ObjectQuery::default() };
    let newest = app.store.newest_event().await?;
    let mut cursors = store::cursors(app.store.as_ref()).await?;
    let mut sinks = Vec::new();
    let mut query = restrict(&who, query);
    while let Some(page) = &query {
        let found = app.store.find(page).await?;
        for object in &found.objects {
            let cursor = cursors.remove(object.key.id());
            let cursor = cursor.filter(|(position, _)| position.seq != store::RETIRED);
            sinks.push(view(&app, object, cursor, newest).await?);
        }
        query = found.next.map(|next| ObjectQuery { after: Some(next), ..page.clone() });
    }
    sinks.sort_by(|a, b| (&a.org, &a.name).cmp(&(&b.org, &b.name)));
    Ok(Json(SinkList { sinks, newest }))
}

/// A sink, and how far it is.
#[utoipa::path(get, path = "/api/v1/sinks/{id}", tag = "bus", params(("id" = String, Path)),
    responses((status = 200, body = SinkView)))]
async fn get(
    State(app): State<App>,
    Caller(who): Caller,
    PathId(id): PathId,
) -> Result<Json<SinkView>> {
    let key = key(&id)?;
    let found = app.store.object(&key).await?;
    let seen = found.filter(|object| object.deleted_at.is_none() && can_see(&who, object));
    let object = seen.ok_or_else(|| Error::NotFound(key.to_string()))?;
    let newest = app.store.newest_event().await?;
    let cursor = store::cursor(app.store.as_ref(), &id).await?;
    Ok(Json(view(&app, &object, cursor, newest).await?))
}

async fn view(
    app: &App,
    object: &Object,
    cursor: Option<(Position, Cursor)>,
    newest: i64,
) -> Result<SinkView> {
    let sink = Sink::from_object(object)?;
    let (position, cursor) = match cursor {
        Some((position, cursor)) => (Some(position), cursor),
        None => Default::default(),
    };
    let lag_events = position.map_or(0, |position| (newest - position.seq).max(0));
    let mut lag_s = 0.0;
    if let Some(position) = position.filter(|_| lag_events > 0) {
        let org = Some(sink.org.clone()).filter(|org| !org.is_empty());
        let filter = EventFilter { org, ..EventFilter::default() };
        let next = app.store.events(position.seq, &filter, 1).await?;
        let since = next.first().map(|event| app.ambient.now().0 - event.at.0);
        lag_s = since.map_or(0.0, |ms| ms.max(0) as f64 / 1000.0);
    }
    Ok(SinkView {
        id: sink.id,
        name: sink.name,
        org: sink.org,
        transport: sink.spec.transport,
        target: sink.spec.url.unwrap_or(sink.spec.target),
        filter: sink.spec.filter,
        mode: sink.spec.mode,
        phase: sink.phase.label().into(),
        since: sink.status.since,
        reason: sink.status.reason,
        position,
        lag_events,
        lag_s,
        parked: cursor.parked,
        gaps: cursor.gaps,
    })
}

/// Creates a webhook: the events of your organisation are posted to a URL, signed.
///
/// The reply has the `secret` with which signatures are verified (Standard Webhooks).
#[utoipa::path(post, path = "/api/v1/sinks", tag = "bus", request_body = NewWebhook,
    responses((status = 201, body = Object)))]
async fn create_webhook(command: CommandRequest) -> Result<Response> {
    command.execute(Create::NAME, None).await
}

/// Deletes a webhook, or a sink that is no longer configured.
#[utoipa::path(delete, path = "/api/v1/sinks/{id}", tag = "bus", params(("id" = String, Path)),
    responses((status = 200, body = Object)))]
async fn delete(PathId(id): PathId, command: CommandRequest) -> Result<Response> {
    command.execute(Delete::NAME, Some(key(&id)?)).await
}

/// Resumes a parked sink, and sends its parked events again.
#[utoipa::path(post, path = "/api/v1/sinks/{id}/resume", tag = "bus", request_body = ResumeHow,
    params(("id" = String, Path)), responses((status = 202, body = Object)))]
async fn resume(PathId(id): PathId, command: CommandRequest) -> Result<Response> {
    command.execute(Resume::NAME, Some(key(&id)?)).await
}

/// Sends events again, in a new epoch.
#[utoipa::path(post, path = "/api/v1/sinks/{id}/replay", tag = "bus", request_body = ReplayFrom,
    params(("id" = String, Path)), responses((status = 202, body = Object)))]
async fn replay(PathId(id): PathId, command: CommandRequest) -> Result<Response> {
    command.execute(Replay::NAME, Some(key(&id)?)).await
}

fn key(id: &str) -> Result<Key> {
    Key::parse(&format!("{KIND}/{id}"))
}
