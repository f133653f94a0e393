//! One client's position in the event log, with its filter and its visibility.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

use super::super::EventSource;
use super::super::event_stream::encode;
use crate::event_presenter::{EventPresenter, Shown};
use crate::event_tail::{EventReader, Page, TailEvent};
use crate::identity::{Principal, Visibility};
use crate::log::{CloudEvent, Event, EventFilter};
use crate::{App, Error, Result};

/// The most events that a stream buffers.
const BUFFER: usize = 100;
/// A stream reads at most this often: many commits are sent together.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Feed {
    app: App,
    reader: EventReader,
    /// Events of a stream that were not sent yet.
    buffer: VecDeque<Bytes>,
    last_read: Option<Instant>,
    presenter: EventPresenter,
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
        let presenter = EventPresenter::new(app.kinds(), who);
        Ok(Feed { app: app.clone(), reader, buffer: VecDeque::new(), last_read: None, presenter })
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
        let mut shown = Vec::with_capacity(events.len());
        for event in &events {
            match self.presenter.present(event) {
                Some(Shown::Whole) => shown.push(event.event.clone().into()),
                Some(Shown::Part(part)) => {
                    shown.push(Event { data: part.data.clone(), ..event.event.clone() }.into());
                }
                None => {}
            }
        }
        Ok((shown, more))
    }

    fn encoded(&mut self, event: &TailEvent) -> Option<Bytes> {
        let whole = || encode_event(event.event.clone().into());
        Some(match self.presenter.present(event)? {
            Shown::Whole => event.encoded.get_or_init(whole).clone(),
            Shown::Part(part) => {
                let shown = || Event { data: part.data.clone(), ..event.event.clone() };
                part.encoded.get_or_init(|| encode_event(shown().into())).clone()
            }
        })
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
