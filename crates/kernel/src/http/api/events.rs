//! `/api/v1/events`: what changed, from any point on: as pages with long poll, or as a stream.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{Caller, Context, Later, Params, Routes};
use super::feed::{Batch, Feed};
use super::{event_stream, limit};
use crate::identity::Action;
use crate::log::{CloudEvent, EventFilter};
use crate::wait::RECHECK;
use crate::{App, Error, Key, Result};

const LIMIT_MAX: usize = 1000;
const WAIT_S_MAX: u64 = 60;

pub(super) fn routes() -> Routes {
    Routes::new().route(Action::Read, routes!(events))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Ask {
    /// Only events after this one, or `latest`: after the newest there is. Without it, from the
    /// oldest that is kept.
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
    /// Give this as `after` next time.
    next: i64,
}

/// Events in order, as a page or as a stream.
///
/// With `Accept: text/event-stream` a stream that never ends, which `Last-Event-ID` continues.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(Ask,
        ("last-event-id" = Option<String>, Header, description = "Streams only: continue after this event")),
    responses(
        (status = 200, content((EventPage = "application/json"), (String = "text/event-stream"))),
        (status = 410, description = "Events after `after` are no longer kept; `oldest` is the first that is")))]
async fn events(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    Params(ask): Params<Ask>,
    headers: HeaderMap,
) -> Result<Response> {
    let streams = wants_stream(&headers);
    let limit = limit(ask.limit, LIMIT_MAX)?;
    let wait = match ask.wait_s.unwrap_or(0) {
        s @ 0..=WAIT_S_MAX => Duration::from_secs(s),
        _ => return Err(Error::invalid("wait_s", format!("must be at most {WAIT_S_MAX}"))),
    };
    let last = headers.get("last-event-id").filter(|_| streams);
    let after = match last {
        Some(last) => begin(&app, "last-event-id", last.to_str().ok()).await?,
        None => begin(&app, "after", ask.after.as_deref()).await?,
    };
    let subject = ask.object.as_deref().map(Key::parse).transpose();
    let subject = subject.map_err(|_| Error::invalid("object", "must be kind/id"))?;
    let filter = EventFilter { kind: ask.kind, subject, org: ask.org };
    let feed = Feed::new(app.store.clone(), &who, filter, after)?;
    if let Err(gone) = feed.check_kept().await {
        return Ok(gone.into_response());
    }
    Ok(match streams {
        true => event_stream::respond(feed, app, context.closing()),
        false => Later::new(wait, page(app, feed, limit, wait, context.closing())).into_response(),
    })
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream"))
}

/// After which event to begin.
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

/// The next events; waits for the first if there is none.
async fn page(
    app: App,
    mut feed: Feed,
    limit: usize,
    wait: Duration,
    closing: CancellationToken,
) -> Result<Response> {
    let mut over = std::pin::pin!(tokio::time::timeout(wait, closing.cancelled()));
    let mut wakeups = app.store.wakeups().events();
    let mut last_chance = wait.is_zero();
    loop {
        wakeups.mark_unchanged();
        let Batch { events, more } = feed.next(limit).await?;
        if !events.is_empty() || (last_chance && !more) {
            let events = events.into_iter().map(CloudEvent::from).collect();
            return Ok(Json(EventPage { events, next: feed.after }).into_response());
        }
        if more {
            continue;
        }
        tokio::select! {
            _ = &mut over => last_chance = true,
            _ = tokio::time::timeout(RECHECK, wakeups.changed()) => {}
        }
    }
}
