//! Watches: a stream of changes (`?watch=true`), or a list that waits until something in it is new
//! (`?wait=SECONDS&after=REVISION`).
//!
//! Every organisation and every agent has its own notification. The delta is computed when the
//! client can take it, from the client's revision, so a slow client costs no buffer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use kernel::Result;
use kernel::http::{Deferred, EventSource, encode_event, event_stream};
use kernel::identity::Principal;
use serde_json::json;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

use super::list;
use crate::Fleet;
use crate::api::agent;
use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::model::error_code::ErrorCode;
use crate::model::kind::Kind;
use crate::store::index::{Audience, Delta, FeedKey, Row};

const WAIT_S_MAX: u64 = 60;

/// Lists the caller's instances, or watches them if the query says so.
pub async fn list_or_watch(call: Call, who: Arc<Principal>) -> Result<Response> {
    if !is_watch(&call)? {
        return list::for_user(&call, &who).await;
    }
    call.fleet.index.catch_up().await?;
    let feed = FeedKey::org(call.kind.name(), &who.org);
    respond(call, feed)
}

/// Lists the instances of an agent's cluster, or watches them if the query says so.
pub async fn agent_list_or_watch(call: Call, _: Arc<Principal>) -> Result<Response> {
    if !is_watch(&call)? {
        return agent::list(&call).await;
    }
    let cluster = agent::cluster(&call).await?;
    let feed = FeedKey::agent(call.kind.name(), &cluster.id);
    respond(call, feed)
}

/// Whether the query asks for a watch. `?watch=false` is a list like any other.
fn is_watch(call: &Call) -> Result<bool> {
    let (watch, waits) = (call.query("watch"), call.query("wait").is_some());
    if watch.is_none() && !waits {
        return Ok(false);
    }
    if call.query("search").is_some() || call.query("orderBy").is_some() {
        return Err(ErrorCode::Malformed.error("a watch takes neither search nor orderBy"));
    }
    match watch.as_deref() {
        None | Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(waits),
        Some(_) => Err(ErrorCode::Malformed.error("watch must be true or false")),
    }
}

/// Returns the revision after which the client reads.
pub fn after(call: &Call) -> Result<Option<i64>> {
    let Some(text) = call.query("after") else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number >= 0);
    number
        .map(Some)
        .ok_or_else(|| ErrorCode::Malformed.error("after must be the number of a revision"))
}

fn respond(call: Call, feed: FeedKey) -> Result<Response> {
    let after = after(&call)?;
    let closing = call.context.closing();
    if let Some(wait) = call.query("wait") {
        let wait = wait.parse().ok().filter(|wait| *wait <= WAIT_S_MAX).ok_or_else(|| {
            ErrorCode::Malformed
                .error(format!("wait must be a number of seconds, at most {WAIT_S_MAX}"))
        })?;
        let wait = Duration::from_secs(wait);
        let watch = Watch::new(&call, feed, after);
        return Ok(Deferred::new(wait, poll(call, watch, wait, closing)).into_response());
    }
    let last = call.header("last-event-id").and_then(|id| id.parse().ok());
    let watch = Watch::new(&call, feed, last.or(after));
    let source = DeltaSource { watch, delta: Delta::default(), sent: 0, kind_removed: false };
    Ok(event_stream("changes follow", source, closing))
}

/// A client's position in the changes.
struct Watch {
    fleet: Arc<Fleet>,
    feed: FeedKey,
    /// The revision up to which the client has everything.
    after: Option<i64>,
    changes: Receiver<i64>,
    /// Whether manifests are sent, too.
    manifests: bool,
}

impl Watch {
    fn new(call: &Call, feed: FeedKey, after: Option<i64>) -> Watch {
        let fleet = call.fleet.clone();
        let changes = fleet.index.changes(&feed);
        let manifests = agent::wants_manifests(call);
        let watch = Watch { fleet, feed, after, changes, manifests };
        watch.touch_agent();
        watch
    }

    /// Returns what is new, which may be nothing, and advances the position.
    async fn poll_delta(&mut self) -> Delta {
        // Changes come in batches: part of a batch has no revision.
        let seq = *self.changes.borrow_and_update();
        self.fleet.index.wait_for_seq(seq).await;
        let delta = self.fleet.index.delta(&self.feed, self.after);
        self.after = Some(delta.seq);
        delta
    }

    /// Waits until there is something new. Nothing is lost if the future is dropped.
    async fn next(&mut self) -> Delta {
        loop {
            let delta = self.poll_delta().await;
            if delta.full || !delta.changed.is_empty() || !delta.gone.is_empty() {
                return delta;
            }
            if self.changes.changed().await.is_err() {
                // The index is gone: the server is stopping.
                std::future::pending::<()>().await;
            }
        }
    }

    /// An agent that watches is alive, even if it reports nothing.
    fn touch_agent(&self) {
        if let Audience::Agent(id) = &self.feed.audience {
            self.fleet.touch_agent(id);
        }
    }

    fn render(&self, kind: &Kind, row: &Row, out: &mut Vec<u8>) {
        match self.feed.audience {
            Audience::Org(_) => {
                kind.response.render_into(&self.fleet.scope(kind, &row.instance, None), out);
            }
            Audience::Agent(_) => {
                agent::render_for_agent(&self.fleet, kind, row, self.manifests, out)
            }
        }
    }
}

/// Responds with a list as soon as something is new, or at the timeout.
async fn poll(
    call: Call,
    mut watch: Watch,
    wait: Duration,
    closing: CancellationToken,
) -> Result<Response> {
    let delta = tokio::select! {
        biased;
        delta = watch.next() => delta,
        () = closing.cancelled() => watch.poll_delta().await,
        () = tokio::time::sleep(wait) => watch.poll_delta().await,
    };
    watch.touch_agent();
    let kind = &call.kind;
    let count = delta.changed.len();
    let head = match watch.feed.audience {
        Audience::Org(_) => format!(
            r#"{{"kind":"{}","page":1,"size":{count},"total":{count},"items":["#,
            kind.file.list
        ),
        Audience::Agent(_) => agent::list_head(kind),
    };
    let end = delta_suffix(&delta);
    let mut response =
        reply::list(&head, &delta.changed, &end, |row, out| watch.render(kind, row, out));
    response.headers_mut().insert(agent::REVISION, delta.seq.into());
    Ok(response)
}

/// Returns the end of a delta list.
pub fn delta_suffix(delta: &Delta) -> String {
    let Delta { seq, full, gone, .. } = delta;
    let more = json!({ "revision": seq, "full": full, "gone": gone }).to_string();
    format!("],{}", &more[1..])
}

/// The changes of a watch as the source of a stream, one delta after the other.
struct DeltaSource {
    watch: Watch,
    delta: Delta,
    /// How many of the delta's events were sent.
    sent: usize,
    kind_removed: bool,
}

impl EventSource for DeltaSource {
    /// Returns the next event of the delta: `full`, then `gone`, then `changed`. An id means that
    /// everything up to it was sent; of a full delta, only the last event has one.
    fn buffered(&mut self) -> Option<Bytes> {
        let Delta { seq, full, changed, gone } = &self.delta;
        let at = self.sent;
        let head = usize::from(*full);
        let count = head + gone.len() + changed.len();
        if at >= count {
            self.delta = Delta::default();
            return None;
        }
        self.sent += 1;
        let last = at + 1 == count;
        let (event, data, id) = if at < head {
            let about = json!({ "revision": seq, "count": changed.len() });
            ("full", about.to_string().into_bytes(), None)
        } else if let Some(id) = gone.get(at - head) {
            ("gone", json!({ "id": id }).to_string().into_bytes(), None)
        } else {
            let row = &changed[at - head - gone.len()];
            let catalogue = self.watch.fleet.catalogue();
            let Some(kind) = catalogue.kind(&self.watch.feed.kind) else {
                self.kind_removed = true;
                return None;
            };
            let mut out = Vec::with_capacity(1024);
            self.watch.render(kind, row, &mut out);
            ("changed", out, (!full).then_some(row.seq))
        };
        Some(encode_event(if last { Some(*seq) } else { id }, event, &data))
    }

    async fn fill(&mut self) -> Result<(), &'static str> {
        if self.kind_removed {
            return Err("there is no such kind any more");
        }
        (self.delta, self.sent) = (self.watch.next().await, 0);
        Ok(())
    }

    fn on_comment(&mut self) {
        self.watch.touch_agent();
    }
}
