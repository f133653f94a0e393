//! Events as server-sent events. The stream pulls pages from the store as fast as the client
//! takes them, so a slow client holds one page of memory and nobody else up.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderName, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::feed::{Batch, Feed};
use crate::App;
use crate::log::CloudEvent;
use crate::wait::RECHECK;

/// Events that are held for one client at the most.
const PAGE: usize = 100;
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Clients come back after this long, and show a token that is still good.
const LIFETIME: Duration = Duration::from_secs(3600);

pub(super) fn respond(feed: Feed, app: App, closing: CancellationToken) -> Response {
    let beat = KeepAlive::new().interval(HEARTBEAT).text("still here");
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that buffer would hold events back.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Sse::new(events(feed, app, closing)).keep_alive(beat)).into_response()
}

struct Pull {
    feed: Feed,
    wakeups: watch::Receiver<i64>,
    closing: CancellationToken,
    until: Instant,
    ended: bool,
}

fn events(
    feed: Feed,
    app: App,
    closing: CancellationToken,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let wakeups = app.store.wakeups().events();
    let until = Instant::now() + LIFETIME;
    let pull = Pull { feed, wakeups, closing, until, ended: false };
    // The comment opens the stream at once, also when nothing happens for a while.
    let hello = stream::iter([Ok(Event::default().comment("events follow"))]);
    let pages = stream::unfold(pull, |mut pull| async move {
        if pull.ended {
            return None;
        }
        let page = pull.next().await;
        Some((stream::iter(page.into_iter().map(Ok)), pull))
    });
    hello.chain(pages.flatten())
}

impl Pull {
    /// The next page that has something in it. The last one says why it is the last.
    async fn next(&mut self) -> Vec<Event> {
        loop {
            if self.closing.is_cancelled() {
                return self.end(Event::default().comment("the server is stopping"));
            }
            if Instant::now() >= self.until {
                return self.end(Event::default().comment("come back with Last-Event-ID"));
            }
            self.wakeups.mark_unchanged();
            if self.feed.check_kept().await.is_err() {
                // Whoever comes back is told from where on there is something.
                return self.end(Event::default().comment("too slow: events are gone"));
            }
            match self.feed.next(PAGE).await {
                Err(error) => {
                    tracing::warn!(%error, "an event stream ends");
                    return self.end(Event::default().comment("the store did not answer"));
                }
                Ok(Batch { events, .. }) if !events.is_empty() => {
                    return events.into_iter().filter_map(|event| encode(event.into())).collect();
                }
                Ok(Batch { more: true, .. }) => {}
                Ok(Batch { more: false, .. }) => self.wait().await,
            }
        }
    }

    async fn wait(&mut self) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = tokio::time::sleep_until(self.until) => {}
            _ = tokio::time::timeout(RECHECK, self.wakeups.changed()) => {}
        }
    }

    fn end(&mut self, last: Event) -> Vec<Event> {
        self.ended = true;
        vec![last]
    }
}

fn encode(event: CloudEvent) -> Option<Event> {
    let sse = Event::default().id(event.id.clone()).event(&event.kind).json_data(&event);
    sse.inspect_err(|error| tracing::error!(%error, id = event.id, "an event cannot be sent")).ok()
}
