//! One client's position in the event log, with its filter and its visibility.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::response::sse;
use serde::Deserialize;
use tokio::sync::watch;

use super::super::EventSource;
use crate::identity::{Principal, Visibility};
use crate::log::{CloudEvent, Event, EventFilter};
use crate::wait::RECHECK;
use crate::{Error, Result, Store};

/// The most events that a stream buffers.
const BUFFER: usize = 100;

pub(super) struct Feed {
    store: Arc<dyn Store>,
    filter: EventFilter,
    /// A caller without an organisation sees only events of their own objects.
    owner: Option<String>,
    /// The last event that was read.
    pub after: i64,
    wakeups: watch::Receiver<i64>,
    /// Events of a stream that were not sent yet.
    buffer: VecDeque<sse::Event>,
}

impl Feed {
    pub(super) fn new(
        store: Arc<dyn Store>,
        who: &Principal,
        mut filter: EventFilter,
        after: i64,
    ) -> Result<Feed> {
        let (org, owner) = match who.visibility() {
            Visibility::All => (None, None),
            Visibility::Org(org) => (Some(org), None),
            Visibility::Own(subject) => (Some(String::new()), Some(subject)),
        };
        if let Some(org) = org {
            if filter.org.as_ref().is_some_and(|requested| *requested != org) {
                return Err(Error::Forbidden("org: only your own organisation's events".into()));
            }
            filter.org = Some(org);
        }
        let wakeups = store.wakeups().events();
        Ok(Feed { store, filter, owner, after, wakeups, buffer: VecDeque::new() })
    }

    /// Rejects a client that would silently miss purged events.
    pub(super) async fn check_kept(&self) -> Result<()> {
        let oldest = match self.store.first_event().await? {
            Some(first) => first,
            None => self.store.head().await?.event_seq + 1,
        };
        if self.after + 1 < oldest {
            let what = format!("the event after {}", self.after);
            return Err(Error::Gone { what, oldest });
        }
        Ok(())
    }

    /// Returns the next events, and whether there may be more without waiting: there may be none
    /// although there are more to read.
    pub(super) async fn next(&mut self, limit: usize) -> Result<(Vec<Event>, bool)> {
        self.wakeups.mark_unchanged();
        // Read before the events: every event up to this number is in the log by then.
        let head = self.store.head().await?.event_seq;
        let mut events = self.store.events(self.after, &self.filter, limit).await?;
        let more = events.len() >= limit;
        let last = events.last().map_or(self.after, |event| event.seq);
        // Events that the filter left out are not read again.
        self.after = if more { last } else { last.max(head) };
        if let Some(owner) = &self.owner {
            events.retain(|event| owned_by(event, owner));
        }
        Ok((events, more))
    }

    /// Waits until there may be an event after the last call of `next`.
    pub(super) async fn wait(&mut self) {
        let _ = tokio::time::timeout(RECHECK, self.wakeups.changed()).await;
    }
}

fn owned_by(event: &Event, subject: &str) -> bool {
    #[derive(Deserialize)]
    struct Owned {
        owner: String,
    }
    event.data.parse::<Owned>().is_ok_and(|object| object.owner == subject)
}

impl EventSource for Feed {
    fn buffered(&mut self) -> Option<sse::Event> {
        self.buffer.pop_front()
    }

    async fn fill(&mut self) -> Result<(), &'static str> {
        loop {
            // A client that reconnects learns the oldest event that exists.
            self.check_kept().await.map_err(|_| "too slow: events are gone")?;
            let (events, more) = self.next(BUFFER).await.map_err(|error| {
                tracing::warn!(%error, "reading events for a stream failed");
                "the store did not answer"
            })?;
            self.buffer.extend(events.into_iter().filter_map(|event| encode(event.into())));
            if !self.buffer.is_empty() {
                return Ok(());
            }
            if !more {
                self.wait().await;
            }
        }
    }
}

fn encode(event: CloudEvent) -> Option<sse::Event> {
    let sse = sse::Event::default().id(event.id.clone()).event(&event.kind).json_data(&event);
    sse.inspect_err(|error| tracing::error!(%error, id = event.id, "encoding an event failed")).ok()
}
