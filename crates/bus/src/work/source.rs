//! The events of one sink, as batches of messages.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use kernel::error::panic_message;
use kernel::event_presenter::{EventPresenter, Shown};
use kernel::event_tail::{EventReader, EventTail, Page, TailEvent};
use kernel::log::{Event, EventFilter};
use kernel::relay::Renderer;
use kernel::{Class, Error, Result, Timestamp};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::config::Filter;
use crate::decide::wants;
use crate::model::{Gap, Message};
use crate::ports::out::cloudevents::CloudEvents;

/// Events per read.
const PAGE: usize = 1000;
/// A batch ends with the message that brings it to this size.
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// Which events a sink gets, and as what.
pub struct Selection {
    pub filter: Filter,
    /// Only events of this organisation: what others wrote is not even read.
    pub org: Option<String>,
    pub render: Render,
    /// What is shown of each event; all of it without.
    pub presenter: Option<EventPresenter>,
}

pub enum Render {
    CloudEvents(CloudEvents),
    Domain(Arc<dyn Renderer>),
}

/// Messages that are sent together.
#[derive(Debug, Default)]
pub struct Batch {
    pub messages: Vec<Message>,
    /// The last event that is in it or was left out.
    pub upto: i64,
    /// When that event was committed.
    pub at: Option<Timestamp>,
    /// When the first event of it was committed.
    pub since: Option<Timestamp>,
    /// Events that cannot be rendered.
    pub poison: Vec<(i64, String)>,
    /// Events that were purged before they were read.
    pub gap: Option<Gap>,
}

impl Batch {
    /// Whether it does not even move the position.
    pub fn is_nothing(&self, position: i64) -> bool {
        self.messages.is_empty()
            && self.poison.is_empty()
            && self.gap.is_none()
            && self.upto <= position
    }
}

/// Reads and renders in a task of its own while the batch before is sent.
pub struct Source {
    reader: Arc<Mutex<Reader>>,
    /// Of one task at most, which ends with this.
    ahead: JoinSet<Result<Batch>>,
}

impl Source {
    pub fn new(tail: &EventTail, selection: Selection) -> Source {
        let events = subscribe(tail, &selection, 0);
        let tail = tail.clone();
        let reader = Reader { tail, selection, events, page: VecDeque::new(), epoch: 0 };
        Source { reader: Arc::new(Mutex::new(reader)), ahead: JoinSet::new() }
    }

    /// Continues after an event. What was read ahead is forgotten.
    pub async fn seek(&mut self, after: i64, epoch: i64) {
        self.ahead.shutdown().await;
        self.reader.lock().await.seek(after, epoch);
    }

    /// Begins to read what `next` returns.
    pub fn read_ahead(&mut self, max: usize) {
        if self.ahead.is_empty() {
            let reader = self.reader.clone();
            self.ahead.spawn(async move { reader.lock().await.next(max).await });
        }
    }

    /// Returns the next messages, at most about `max`, without waiting for events.
    pub async fn next(&mut self, max: usize) -> Result<Batch> {
        match self.ahead.join_next().await {
            None => self.reader.lock().await.next(max).await,
            Some(Ok(read)) => read,
            Some(Err(error)) => Err(Error::internal("reading events for a sink", error)),
        }
    }

    /// Waits until there may be more.
    pub async fn wait(&mut self) {
        self.reader.lock().await.events.wait().await;
    }

    /// The messages of one event that is no longer next: one that was parked.
    pub async fn single(&mut self, seq: i64) -> Result<Vec<Message>> {
        self.reader.lock().await.single(seq).await
    }
}

struct Reader {
    tail: EventTail,
    selection: Selection,
    events: EventReader,
    /// What was read and not yet rendered.
    page: VecDeque<Arc<TailEvent>>,
    /// Messages of the epoch say so.
    epoch: i64,
}

impl Reader {
    fn seek(&mut self, after: i64, epoch: i64) {
        self.events = subscribe(&self.tail, &self.selection, after);
        self.page.clear();
        self.epoch = epoch;
    }

    async fn next(&mut self, max: usize) -> Result<Batch> {
        let mut batch = Batch::default();
        if self.page.is_empty() {
            let before = self.events.after();
            // A sink that takes one message at a time may hold its page for long.
            match self.events.next(PAGE.min(max * 32)).await? {
                Page::Events { events, .. } => self.page.extend(events),
                Page::Expired { oldest } => {
                    batch.gap = Some(Gap { first: before + 1, last: oldest - 1 });
                    batch.upto = oldest - 1;
                    self.seek(oldest - 1, self.epoch);
                    return Ok(batch);
                }
            }
        }
        batch.since = self.page.front().map(|first| first.event.at);
        let mut bytes = 0;
        while batch.messages.len() < max && bytes < BATCH_BYTES {
            let Some(event) = self.page.front().cloned() else { break };
            let rendered = self.render(&event).await;
            // After what may fail and be repeated.
            self.page.pop_front();
            (batch.upto, batch.at) = (event.event.seq, Some(event.event.at));
            match rendered {
                Ok(messages) => {
                    bytes += messages.iter().map(|message| message.body.len()).sum::<usize>();
                    batch.messages.extend(messages);
                }
                Err(error) if error.class() == Class::Transient => {
                    self.page.push_front(event);
                    return Err(error);
                }
                Err(error) => batch.poison.push((event.event.seq, error.with_causes())),
            }
        }
        // After the last event there may be others that are not for this reader.
        if self.page.is_empty() && self.events.after() != batch.upto {
            (batch.upto, batch.at) = (self.events.after(), None);
        }
        Ok(batch)
    }

    async fn single(&mut self, seq: i64) -> Result<Vec<Message>> {
        let mut events = subscribe(&self.tail, &self.selection, seq - 1);
        let (events, _) = events.next_events(1).await?;
        match events.first() {
            Some(event) if event.event.seq == seq => self.render(event).await,
            _ => Ok(Vec::new()),
        }
    }

    /// An event that makes a renderer panic is one that cannot be rendered.
    async fn render(&mut self, event: &TailEvent) -> Result<Vec<Message>> {
        let rendered = AssertUnwindSafe(self.selection.messages(event, self.epoch)).catch_unwind();
        rendered.await.unwrap_or_else(|panic| {
            let why = format!("it panicked: {}", panic_message(panic.as_ref()));
            Err(Error::internal("rendering the event", why))
        })
    }
}

impl Selection {
    async fn messages(&mut self, event: &TailEvent, epoch: i64) -> Result<Vec<Message>> {
        let Selection { filter, presenter, render, .. } = self;
        if !wants(filter, &event.event) {
            return Ok(Vec::new());
        }
        let data = match presenter {
            None => &event.event.data,
            Some(presenter) => match presenter.present(event) {
                Some(Shown::Whole) => &event.event.data,
                Some(Shown::Part(part)) => &part.data,
                None => return Ok(Vec::new()),
            },
        };
        match render {
            Render::CloudEvents(cloudevents) => {
                Ok(vec![cloudevents.message(&event.event, data, epoch)])
            }
            Render::Domain(renderer) => {
                renderer.render(&Event { data: data.clone(), ..event.event.clone() }).await
            }
        }
    }
}

fn subscribe(tail: &EventTail, selection: &Selection, after: i64) -> EventReader {
    tail.subscribe(after, EventFilter { org: selection.org.clone(), ..EventFilter::default() })
}
