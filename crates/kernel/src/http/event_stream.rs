//! Server-sent events: what every stream has, whatever its events are.
//!
//! A stream asks its source for events as fast as the client takes them, so a slow client costs
//! one buffer of memory and delays nobody else.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderName, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const HEARTBEAT: Duration = Duration::from_secs(15);
/// Clients reconnect after this long, with a token that is still valid.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Where the events of a stream come from.
pub trait EventSource: Send + 'static {
    /// Returns the next event that needs no waiting.
    fn buffered(&mut self) -> Option<Event>;

    /// Waits until there is something to buffer; an error ends the stream with that comment. The
    /// future is dropped at each heartbeat, and must not lose events then.
    fn fill(&mut self) -> impl Future<Output = Result<(), &'static str>> + Send;

    /// Called before each comment that the stream sends.
    fn on_comment(&mut self) {}
}

/// Responds with a stream of the source's events, from the comment `hello` until `closing`.
pub fn event_stream(
    hello: &'static str,
    source: impl EventSource,
    closing: CancellationToken,
) -> Response {
    let until = Instant::now() + LIFETIME;
    let state = State { source, closing, until, ended: false };
    // A comment opens the stream at once, even when no event follows for a while.
    let hello = stream::iter([Ok::<_, Infallible>(Event::default().comment(hello))]);
    let events = hello.chain(stream::unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((Ok(event), state))
    }));
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that buffer would delay events.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Sse::new(events)).into_response()
}

struct State<S> {
    source: S,
    closing: CancellationToken,
    until: Instant,
    ended: bool,
}

impl<S: EventSource> State<S> {
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(event) = self.source.buffered() {
                return Some(event);
            }
            let (comment, ended) = tokio::select! {
                biased;
                () = self.closing.cancelled() => ("the server is stopping", true),
                filled = self.source.fill() => match filled {
                    Ok(()) => continue,
                    Err(reason) => (reason, true),
                },
                () = tokio::time::sleep_until(self.until) => ("come back with Last-Event-ID", true),
                () = tokio::time::sleep(HEARTBEAT) => ("still here", false),
            };
            self.source.on_comment();
            self.ended = ended;
            return Some(Event::default().comment(comment));
        }
    }
}
