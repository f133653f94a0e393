//! The events of one sink, as batches of messages.

use std::collections::VecDeque;
use std::sync::Arc;

use kernel::event_presenter::{EventPresenter, Shown};
use kernel::event_tail::{EventReader, EventTail, Page, TailEvent};
use kernel::log::{Event, EventFilter};
use kernel::relay::Renderer;
use kernel::{Class, Result, Timestamp};

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

pub struct Source {
    tail: EventTail,
    selection: Selection,
    reader: EventReader,
    /// What was read and not yet rendered.
    page: VecDeque<Arc<TailEvent>>,
    /// Messages of the epoch say so.
    pub epoch: i64,
}

impl Source {
    pub fn new(tail: &EventTail, selection: Selection) -> Source {
        let reader = subscribe(tail, &selection, 0);
        Source { tail: tail.clone(), selection, reader, page: VecDeque::new(), epoch: 0 }
    }

    /// Continues after an event.
    pub fn seek(&mut self, after: i64, epoch: i64) {
        self.reader = subscribe(&self.tail, &self.selection, after);
        self.page.clear();
        self.epoch = epoch;
    }

    /// Returns the next messages, at most about `max`, without waiting.
    pub async fn next(&mut self, max: usize) -> Result<Batch> {
        let mut batch = Batch::default();
        if self.page.is_empty() {
            let before = self.reader.after();
            match self.reader.next(PAGE).await? {
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
            batch.upto = event.event.seq;
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
        if self.page.is_empty() {
            batch.upto = self.reader.after();
        }
        Ok(batch)
    }

    /// Waits until there may be more.
    pub async fn wait(&mut self) {
        self.reader.wait().await;
    }

    /// The messages of one event that is no longer next: one that was parked.
    pub async fn single(&mut self, seq: i64) -> Result<Vec<Message>> {
        let mut reader = subscribe(&self.tail, &self.selection, seq - 1);
        let (events, _) = reader.next_events(1).await?;
        match events.first() {
            Some(event) if event.event.seq == seq => self.render(event).await,
            _ => Ok(Vec::new()),
        }
    }

    async fn render(&mut self, event: &TailEvent) -> Result<Vec<Message>> {
        let Selection { filter, presenter, render, .. } = &mut self.selection;
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
                Ok(vec![cloudevents.message(&event.event, data, self.epoch)])
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
