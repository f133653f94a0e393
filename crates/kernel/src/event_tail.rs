//! The one reader of the event log in a process: a ring of the newest events, from which informers,
//! streams, long polls and waiters are served. Only who is behind the ring reads the store.
//!
//! There is no task: the first reader that finds news reads them for all.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::log::{Event, EventFilter};
use crate::store::{Watermark, is_last_page};
use crate::{Error, Json, Result, Store};

/// Wake-ups may get lost; without one, readers check again after this long.
pub const RECHECK: Duration = Duration::from_secs(15);
/// Events per read of the store.
const BATCH: usize = 1000;
/// What the ring holds at most.
const RING_EVENTS_MAX: usize = 8192;
const RING_BYTES_MAX: usize = 16 << 20;

/// Cheap to clone.
#[derive(Clone)]
pub struct EventTail(Arc<Tail>);

struct Tail {
    store: Arc<dyn Store>,
    ring: RwLock<Ring>,
    /// Held by the reader that reads the store for all.
    filling: Mutex<()>,
}

/// The newest events without a gap.
#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<TailEvent>>,
    bytes: usize,
    /// The number of the last event, or where the ring began.
    last: Option<i64>,
}

/// An event in the ring.
pub struct TailEvent {
    pub event: Event,
    /// As a stream sends it to everybody who may see all of it; encoded once.
    pub encoded: OnceLock<Bytes>,
    /// The part that others are shown, if any.
    pub part: OnceLock<Option<EventPart>>,
}

/// What is shown of an event to those who may not see all of it.
pub struct EventPart {
    pub data: Json,
    /// As a stream sends it; encoded once.
    pub encoded: OnceLock<Bytes>,
}

impl TailEvent {
    fn new(event: Event) -> Arc<TailEvent> {
        Arc::new(TailEvent { event, encoded: OnceLock::new(), part: OnceLock::new() })
    }
}

/// What a reader finds.
pub enum Page {
    /// In order. There may be none although there are more to read.
    Events { events: Vec<Arc<TailEvent>>, more: bool },
    /// Unread events were purged; `oldest` is the first that is kept.
    Expired { oldest: i64 },
}

impl EventTail {
    pub fn new(store: Arc<dyn Store>) -> EventTail {
        EventTail(Arc::new(Tail { store, ring: RwLock::default(), filling: Mutex::default() }))
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Reads events after the number `after`.
    pub fn subscribe(&self, after: i64, filter: EventFilter) -> EventReader {
        let wakeups = self.0.store.wakeups().events();
        EventReader { tail: self.clone(), after, filter, wakeups, overdue: true }
    }

    /// The number of the last event in the ring.
    fn last(&self) -> Option<i64> {
        self.0.ring.read().last
    }

    /// Reads what is new into the ring, unless another reader does; then waits for it.
    async fn fill(&self, known: Option<i64>) -> Result<()> {
        let _filling = self.0.filling.lock().await;
        let Some(last) = self.last() else {
            let newest = self.0.store.newest_event().await?;
            self.0.ring.write().last = Some(newest);
            return Ok(());
        };
        if known != Some(last) {
            return Ok(());
        }
        let events = self.0.store.events(last, &EventFilter::default(), BATCH).await?;
        if events.is_empty() {
            return Ok(());
        }
        let mut ring = self.0.ring.write();
        // Numbers have no gaps: the events between were purged.
        if events.first().is_some_and(|first| first.seq != last + 1) {
            *ring = Ring::default();
        }
        for event in events {
            ring.push(event);
        }
        Ok(())
    }
}

impl Ring {
    fn push(&mut self, event: Event) {
        self.last = Some(event.seq);
        self.bytes += size(&event);
        self.events.push_back(TailEvent::new(event));
        while self.events.len() > RING_EVENTS_MAX
            || (self.bytes > RING_BYTES_MAX && self.events.len() > 1)
        {
            let gone = self.events.pop_front();
            self.bytes -= gone.map_or(0, |gone| size(&gone.event));
        }
    }

    /// Whether all events after this number are in the ring.
    fn covers(&self, after: i64) -> bool {
        match (self.events.front(), self.last) {
            (Some(first), _) => after + 1 >= first.event.seq,
            (None, Some(last)) => after >= last,
            (None, None) => false,
        }
    }
}

/// The approximate memory of an event, twice: it may be encoded, too.
fn size(event: &Event) -> usize {
    size_of::<TailEvent>() + 2 * event.data.text().len()
}

/// One reader's position in the event log.
pub struct EventReader {
    tail: EventTail,
    /// The last event that was read; those that the filter left out count.
    after: i64,
    filter: EventFilter,
    wakeups: Arc<Watermark>,
    /// No wake-up came for long: read the store all the same.
    overdue: bool,
}

impl EventReader {
    /// The last event that was read.
    pub fn after(&self) -> i64 {
        self.after
    }

    /// Returns the next events, at most `max`, without waiting.
    pub async fn next(&mut self, max: usize) -> Result<Page> {
        let newest = self.wakeups.get();
        let last = self.tail.last();
        if last.is_none_or(|last| newest > last) || std::mem::take(&mut self.overdue) {
            self.tail.fill(last).await?;
        }
        let found = self.read_ring(max);
        match found {
            Some(page) => Ok(page),
            None => self.read_store(max).await,
        }
    }

    /// `None` if the ring does not reach back to this reader.
    fn read_ring(&mut self, max: usize) -> Option<Page> {
        let ring = self.tail.0.ring.read();
        if !ring.covers(self.after) {
            return None;
        }
        let first = ring.events.front().map_or(0, |first| first.event.seq);
        let skip = usize::try_from((self.after + 1 - first).max(0)).unwrap_or(usize::MAX);
        let mut events = Vec::new();
        for event in ring.events.iter().skip(skip) {
            if events.len() == max {
                break;
            }
            self.after = event.event.seq;
            if self.filter.matches(&event.event) {
                events.push(event.clone());
            }
        }
        let more = ring.last.is_some_and(|last| last > self.after);
        Some(Page::Events { events, more })
    }

    async fn read_store(&mut self, max: usize) -> Result<Page> {
        let store = &self.tail.0.store;
        let first = store.first_event().await?;
        // Read before the events: every event up to this number is in the log by then.
        let newest = store.newest_event().await?;
        let oldest = first.unwrap_or(newest + 1);
        if self.after + 1 < oldest {
            return Ok(Page::Expired { oldest });
        }
        let events = store.events(self.after, &self.filter, max).await?;
        let last = events.last().map_or(self.after, |event| event.seq);
        let last_page = is_last_page(&events, max);
        self.after = if last_page { last.max(newest) } else { last };
        let events = events.into_iter().map(TailEvent::new).collect();
        Ok(Page::Events { events, more: true })
    }

    /// Waits until there may be an event after the last call of `next`.
    pub async fn wait(&mut self) {
        let news = self.wakeups.above(self.after);
        self.overdue = tokio::time::timeout(RECHECK, news).await.is_err();
    }

    /// Like `next`, but an error if unread events were purged.
    pub async fn next_events(&mut self, max: usize) -> Result<(Vec<Arc<TailEvent>>, bool)> {
        match self.next(max).await? {
            Page::Events { events, more } => Ok((events, more)),
            Page::Expired { oldest } => {
                Err(Error::Gone { what: format!("the event after {}", self.after), oldest })
            }
        }
    }
}
