//! One client's position in the event log, with its filter and its visibility.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

use super::super::EventSource;
use super::super::event_stream::encode;
use crate::event_tail::{EventReader, Page, TailEvent};
use crate::identity::{Principal, Visibility};
use crate::log::{CloudEvent, EventFilter};
use crate::{App, Error, Json, Object, Result};

/// The most events that a stream buffers.
const BUFFER: usize = 100;
/// A stream reads at most this often: many commits are sent together.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Feed {
    app: App,
    who: Arc<Principal>,
    reader: EventReader,
    /// Events of a stream that were not sent yet.
    buffer: VecDeque<Bytes>,
    last_read: Option<Instant>,
}

impl Feed {
    pub(super) fn new(
        app: &App,
        who: Arc<Principal>,
        mut filter: EventFilter,
        after: i64,
    ) -> Result<Feed> {
        let org = match who.visibility() {
            Visibility::All => None,
            Visibility::Org(org) => Some(org),
            Visibility::Own(_) => Some(String::new()),
        };
        if let Some(org) = org {
            if filter.org.as_ref().is_some_and(|requested| *requested != org) {
                return Err(Error::Forbidden("org: only your own organisation's events".into()));
            }
            filter.org = Some(org);
        }
        let reader = app.tail().subscribe(after, filter);
        Ok(Feed { app: app.clone(), who, reader, buffer: VecDeque::new(), last_read: None })
    }

    pub(super) fn after(&self) -> i64 {
        self.reader.after()
    }

    /// Rejects a client that would silently miss purged events.
    pub(super) async fn check_kept(&self) -> Result<()> {
        let oldest = match self.app.store.first_event().await? {
            Some(first) => first,
            None => self.app.store.newest_event().await? + 1,
        };
        if self.after() + 1 < oldest {
            let what = format!("the event after {}", self.after());
            return Err(Error::Gone { what, oldest });
        }
        Ok(())
    }

    /// Returns the next events, and whether there may be more without waiting: there may be none
    /// although there are more to read.
    pub(super) async fn next(&mut self, limit: usize) -> Result<(Vec<CloudEvent>, bool)> {
        let (events, more) = self.reader.next_events(limit).await?;
        let shown = events.iter().filter_map(|event| {
            let presented = self.present(event)?;
            let mut event = event.event.clone();
            if let Cow::Owned(data) = presented {
                event.data = data;
            }
            Some(event.into())
        });
        Ok((shown.collect(), more))
    }

    /// Returns the data of an event as this client is shown it; `None` if it is not.
    fn present<'e>(&self, event: &'e TailEvent) -> Option<Cow<'e, Json>> {
        let data = &event.event.data;
        if self.who.is_admin() {
            return Some(Cow::Borrowed(data));
        }
        let object = data.parse::<Object>().ok()?;
        match self.app.kinds().present(&object, &self.who)? {
            Cow::Borrowed(_) => Some(Cow::Borrowed(data)),
            Cow::Owned(shown) => Some(Cow::Owned(Json::encode(&shown))),
        }
    }

    fn encoded(&self, event: &TailEvent) -> Option<Bytes> {
        let whole = || encode_event(event.event.clone().into());
        match self.present(event)? {
            Cow::Borrowed(_) => Some(event.encoded.get_or_init(whole).clone()),
            Cow::Owned(data) => {
                let event = crate::log::Event { data, ..event.event.clone() };
                Some(encode_event(event.into()))
            }
        }
    }

    /// Waits until there may be an event after the last call of `next`.
    pub(super) async fn wait(&mut self) {
        self.reader.wait().await;
    }
}

impl EventSource for Feed {
    fn buffered(&mut self) -> Option<Bytes> {
        self.buffer.pop_front()
    }

    async fn fill(&mut self) -> Result<(), &'static str> {
        loop {
            if let Some(last) = self.last_read {
                tokio::time::sleep_until(last + PAUSE).await;
            }
            let page = self.reader.next(BUFFER).await.map_err(|error| {
                tracing::warn!(%error, "reading events for a stream failed");
                "the store did not answer"
            })?;
            self.last_read = Some(Instant::now());
            // A client that reconnects learns the oldest event that exists.
            let Page::Events { events, more } = page else {
                return Err("too slow: events are gone");
            };
            for event in &events {
                let encoded = self.encoded(event);
                self.buffer.extend(encoded);
            }
            if !self.buffer.is_empty() {
                return Ok(());
            }
            if more {
                self.last_read = None;
            } else {
                self.wait().await;
            }
        }
    }
}

fn encode_event(event: CloudEvent) -> Bytes {
    let data = serde_json::to_vec(&event).expect("our own types serialise");
    encode(Some(event.sequence), &event.kind, &data)
}
