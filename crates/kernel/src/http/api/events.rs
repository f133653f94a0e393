//! `/api/v1/events`: what changed since any event, as pages with long poll or as a stream.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{Caller, Context, Deferred, Params, Routes, event_stream};
use super::feed::Feed;
use super::limit;
use crate::identity::Action;
use crate::log::{CloudEvent, EventFilter};
use crate::{App, Error, Key, Result};

const LIMIT_MAX: usize = 1000;
const WAIT_S_MAX: u64 = 60;

pub(super) fn routes() -> Routes {
    Routes::new().route(Action::Read, routes!(events))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventParams {
    /// Only events after this one, or `latest`: after the newest. Without it, from the oldest that
    /// is kept.
    after: Option<String>,
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
    /// Only of objects of this kind.
    kind: Option<String>,
    /// Only of this object, as `kind/id`.
    object: Option<String>,
    org: Option<String>,
    /// If there is no event yet, wait this long for one.
    #[param(maximum = 60, default = 0)]
    wait_s: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct EventPage {
    events: Vec<CloudEvent>,
    /// The `after` of the next request.
    next: i64,
}

/// Events in order, as a page or as a stream.
///
/// With `Accept: text/event-stream` a stream, which `Last-Event-ID` continues.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventParams,
        ("last-event-id" = Option<String>, Header, description = "Streams only: continue after this event")),
    responses(
        (status = 200, content((EventPage = "application/json"), (String = "text/event-stream"))),
        (status = 410, description = "Events after `after` are no longer kept; `oldest` is the first that is")))]
async fn events(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response> {
    let streams = wants_stream(&headers);
    let limit = limit(params.limit, LIMIT_MAX)?;
    let wait = super::wait("wait_s", params.wait_s.unwrap_or(0), WAIT_S_MAX)?;
    let last = headers.get("last-event-id").filter(|_| streams);
    let after = match last {
        Some(last) => begin(&app, "last-event-id", last.to_str().ok()).await?,
        None => begin(&app, "after", params.after.as_deref()).await?,
    };
    let subject = params.object.as_deref().map(Key::parse).transpose();
    let subject = subject.map_err(|_| Error::invalid("object", "must be kind/id"))?;
    let filter = EventFilter { kind: params.kind, subject, org: params.org };
    let feed = Feed::new(&app, who, filter, after)?;
    feed.check_kept().await?;
    if streams {
        return Ok(event_stream("events follow", feed, context.closing()));
    }
    Ok(Deferred::new(wait, page(feed, limit, wait, context.closing())).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream"))
}

/// Returns the event after which the client reads.
async fn begin(app: &App, field: &str, given: Option<&str>) -> Result<i64> {
    let latest = async || app.store.head().await.map(|head| head.event_seq);
    match given {
        None => match app.store.first_event().await? {
            Some(first) => Ok(first - 1),
            None => latest().await,
        },
        Some("latest") => latest().await,
        Some(number) => {
            let number = number.parse().ok().filter(|number| *number >= 0);
            number.ok_or_else(|| Error::invalid(field, "must be the number of an event"))
        }
    }
}

/// Returns the next events, and waits for the first if there is none.
async fn page(
    mut feed: Feed,
    limit: usize,
    wait: Duration,
    closing: CancellationToken,
) -> Result<Response> {
    let mut deadline = std::pin::pin!(tokio::time::timeout(wait, closing.cancelled()));
    let mut expired = wait.is_zero();
    loop {
        let (events, more) = feed.next(limit).await?;
        if !events.is_empty() || (expired && !more) {
            return Ok(Json(EventPage { events, next: feed.after() }).into_response());
        }
        if more {
            continue;
        }
        tokio::select! {
            _ = &mut deadline => expired = true,
            () = feed.wait() => {}
        }
    }
}
