//! Server-sent events: what every stream has, whatever its events are.
//!
//! A stream asks its source for events as fast as the client takes them, so a slow client costs
//! one buffer of memory and delays nobody else.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const HEARTBEAT: Duration = Duration::from_secs(15);
/// Clients reconnect after this long, with a token that is still valid.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Events are sent together up to this size.
const CHUNK_BYTES: usize = 64 << 10;

/// Encodes an event. The id, if there is one, is what a client sends to continue after it.
pub fn encode(id: Option<i64>, event: &str, data: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(data.len() + event.len() + 48);
    if let Some(id) = id {
        text.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    text.extend_from_slice(format!("event: {event}\n").as_bytes());
    for line in data.split(|byte| *byte == b'\n') {
        text.extend_from_slice(b"data: ");
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.push(b'\n');
    text.into()
}

fn comment(text: &str) -> Bytes {
    format!(": {text}\n\n").into()
}

/// Where the events of a stream come from.
pub trait EventSource: Send + 'static {
    /// Returns the next event that needs no waiting.
    fn buffered(&mut self) -> Option<Bytes>;

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
    let hello = stream::iter([Ok::<_, Infallible>(comment(hello))]);
    let events = hello.chain(stream::unfold(state, |mut state| async move {
        let chunk = state.next().await?;
        Some((Ok(chunk), state))
    }));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that buffer would delay events.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

struct State<S> {
    source: S,
    closing: CancellationToken,
    until: Instant,
    ended: bool,
}

impl<S: EventSource> State<S> {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(event) = self.source.buffered() {
                return Some(self.joined(event));
            }
            let (text, ended) = tokio::select! {
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
            return Some(comment(text));
        }
    }

    /// Adds what else is buffered: one write for many events.
    fn joined(&mut self, first: Bytes) -> Bytes {
        let Some(second) = self.source.buffered() else { return first };
        let mut chunk = [first, second].concat();
        while chunk.len() < CHUNK_BYTES
            && let Some(event) = self.source.buffered()
        {
            chunk.extend_from_slice(&event);
        }
        chunk.into()
    }
}
