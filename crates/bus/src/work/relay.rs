//! The pump of one sink: from the event log to an outlet, from the sink's cursor on.
//!
//! While a batch is sent, the next one is read and the position before it is saved. After any failure
//! the outlet is opened again and everything after the position is sent once more.

mod condition;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernel::log::EventFilter;
use kernel::{Ambient, Backoff, Class, Error, Refusal, Result, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use super::leadership::Held;
use super::send::{Delivered, send_in_order};
use super::source::{Batch, Source};
use super::state::SinkState;
use crate::config::Start;
use crate::decide::pace::Failures;
use crate::model::{Cursor, Message, ParkedEvent, Phase, Position, Sink, Spec};
use crate::ports::out::{Outlet, Refused, is_closed};
use crate::store;

/// The position is saved at the latest this long after it moved.
const SAVE_AFTER: Duration = Duration::from_millis(200);
/// Saves are at least this far apart if it only passed events that are not for the sink: there may be
/// thousands of sinks, and what is passed again costs little.
const SAVE_SKIPPED_AFTER: Duration = Duration::from_secs(30);
/// Then it is saved when nothing has happened for this long: `bus status` shows no lag.
const SAVE_IDLE_AFTER: Duration = Duration::from_secs(2);
/// How long a stop waits for what is in flight.
const STOP_GRACE: Duration = Duration::from_secs(5);

pub struct Relay {
    /// The id of the sink.
    pub id: String,
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub source: Source,
    pub outlet: Box<dyn Outlet>,
    pub start: Start,
    pub backoff: Backoff,
    /// Webhooks are parked when they have failed for this long.
    pub park_after: Option<Duration>,
    /// What people ask of the sink.
    pub spec: watch::Receiver<Spec>,
    pub state: Arc<SinkState>,
}

/// What the pump knows while it holds the lease.
struct Progress {
    position: Position,
    cursor: Cursor,
    saved_at: Instant,
    saved_seq: i64,
    /// Something was delivered since.
    unsaved: bool,
    failures: Failures,
    /// It was connected before, under this lease.
    was_open: bool,
    phase: Phase,
    /// The reason that the store has for the phase, and since when.
    reported: Option<(String, Instant)>,
}

/// Why a connection ended.
enum End {
    /// The lease is lost, or the server stops.
    Over,
    Failed(Error),
    /// Only a person can resume the sink, because of this.
    Park(String),
    /// A person asked for something.
    Asked,
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        match error {
            // Another process has the lease.
            Error::Refused(Refusal::FenceLost(_)) => End::Over,
            error if is_closed(&error) => End::Park(error.with_causes()),
            error => End::Failed(error),
        }
    }
}

impl Relay {
    /// Relays for as long as the lease is held.
    pub async fn run(&mut self, held: &Held) {
        let Some(mut at) = self.begin(held).await else { return };
        loop {
            let ended = match at.phase {
                Phase::Parked if !self.is_asked_to_resume(&at) => self.wait_for_person(held).await,
                _ => self.connected(held, &mut at).await,
            };
            match ended {
                End::Over => break,
                End::Asked => {}
                End::Park(why) => self.park(held, &mut at, &why).await,
                End::Failed(error) => self.failed(held, &mut at, &error).await,
            }
            if held.is_over() {
                break;
            }
        }
        // Also when the lease is lost: the broker must let the next holder in.
        self.outlet.close().await;
        if !held.lost.is_cancelled() {
            // What is not saved is sent again.
            let _ = self.save(held, &mut at).await;
        }
    }

    /// Reads the position, and makes one for a new sink. Repeats until the store answers.
    async fn begin(&mut self, held: &Held) -> Option<Progress> {
        loop {
            match self.read_position(held).await {
                Ok(progress) => return Some(progress),
                Err(error) => tracing::warn!(sink = self.id, %error, "reading the position failed"),
            }
            held.pause().await;
            if held.is_over() {
                return None;
            }
        }
    }

    async fn read_position(&mut self, held: &Held) -> Result<Progress> {
        let store = self.store.as_ref();
        let (position, cursor) = match store::cursor(store, &self.id).await? {
            Some(found) => found,
            None => {
                let seq = match self.start {
                    Start::Latest => store::first_position(store, &self.id).await?,
                    Start::Earliest => store.first_event().await?.map_or(0, |first| first - 1),
                };
                let epoch = self.spec.borrow().epoch;
                let cursor = Cursor { epoch, ..Cursor::default() };
                // At once: events from here on are kept for the sink.
                let now = self.ambient.now();
                store::save(store, &self.id, held.fence(), seq, &cursor, now).await?;
                (Position { epoch, seq, at: None }, cursor)
            }
        };
        let object = store.object(&store::key(&self.id)).await?;
        let sink = object.map(|object| Sink::from_object(&object)).transpose()?;
        let sink = sink.filter(|sink| matches!(sink.phase, Phase::Failing | Phase::Parked));
        let (phase, reason) =
            sink.map_or((Phase::Running, String::new()), |sink| (sink.phase, sink.status.reason));
        self.state.parked.store(cursor.parked.len() as u64, Ordering::Relaxed);
        self.state.seq.store(position.seq, Ordering::Relaxed);
        self.state.set_condition(phase, &reason);
        if phase != Phase::Running {
            self.note_lag(position).await;
        }
        // A restart does not give a failing sink another day.
        let tried_ms = if phase == Phase::Failing { cursor.tried_ms } else { 0 };
        Ok(Progress {
            position,
            cursor,
            saved_at: Instant::now(),
            saved_seq: position.seq,
            unsaved: false,
            failures: Failures::after(Duration::from_millis(tried_ms)),
            was_open: false,
            phase,
            reported: None,
        })
    }

    /// Opens the outlet and relays until something fails.
    async fn connected(&mut self, held: &Held, at: &mut Progress) -> End {
        let opened = tokio::select! {
            biased;
            opened = self.outlet.open() => opened,
            () = held.over() => return End::Over,
        };
        let ended = match opened {
            Ok(theirs) => {
                at.was_open = true;
                self.relay(held, at, theirs).await
            }
            Err(error) => Err(End::Failed(error)),
        };
        match ended {
            Err(end) => end,
            Ok(()) => End::Over,
        }
    }

    async fn relay(
        &mut self,
        held: &Held,
        at: &mut Progress,
        theirs: Option<Position>,
    ) -> Result<(), End> {
        self.agree(held, at, theirs).await?;
        loop {
            self.obey(held, at).await?;
            let batch = self.source.next(self.outlet.batch_max()).await?;
            if batch.is_nothing(at.position.seq) {
                self.state.waiting_since.store(0, Ordering::Relaxed);
                self.recovered(held, at).await;
                self.idle(held, at).await?;
            } else {
                let since = batch.since.map_or(0, |since| since.0);
                self.state.waiting_since.store(since, Ordering::Relaxed);
                self.deliver(held, at, batch).await?;
            }
            if held.is_over() {
                return Ok(());
            }
        }
    }

    /// The later of both positions counts. One of a log that is gone (the store was restored from a
    /// backup) does not: its numbers are other events now. A new epoch begins then with ours, so that
    /// some events come twice and none is missing.
    async fn agree(
        &mut self,
        held: &Held,
        at: &mut Progress,
        theirs: Option<Position>,
    ) -> Result<(), End> {
        if let Some(theirs) = theirs.filter(|theirs| *theirs > at.position) {
            if self.is_of_this_log(theirs).await? {
                at.position = theirs;
            } else {
                tracing::error!(
                    sink = self.id,
                    theirs = theirs.seq,
                    ours = at.position.seq,
                    "the sink had events that the log does not have: was the store restored? \
                     Going on from our position in a new epoch"
                );
                at.position.epoch = theirs.epoch + 1;
            }
        }
        if at.cursor.epoch != at.position.epoch {
            at.cursor.epoch = at.position.epoch;
            self.save(held, at).await?;
        }
        self.source.seek(at.position.seq, at.position.epoch).await;
        self.state.seq.store(at.position.seq, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the event of a position is the one that the log has.
    async fn is_of_this_log(&mut self, position: Position) -> Result<bool> {
        if position.seq > self.store.newest_event().await? {
            return Ok(false);
        }
        let found = self.store.events(position.seq - 1, &EventFilter::default(), 1).await?;
        // One that was purged says nothing.
        let found = found.first().filter(|event| event.seq == position.seq);
        Ok(found.is_none_or(|event| position.at.is_none_or(|at| at == event.at)))
    }

    /// Waits for events, for people, or until the position is to be saved.
    async fn idle(&mut self, held: &Held, at: &mut Progress) -> Result<(), End> {
        let moved = at.position.seq != at.saved_seq;
        let save_at = if at.unsaved {
            at.saved_at + SAVE_AFTER
        } else {
            (at.saved_at + SAVE_SKIPPED_AFTER).max(Instant::now() + SAVE_IDLE_AFTER)
        };
        tokio::select! {
            biased;
            () = self.source.wait() => {}
            // An error: nobody can ask any more.
            Ok(()) = self.spec.changed() => {}
            () = tokio::time::sleep_until(save_at), if moved => self.save(held, at).await?,
            () = held.over() => {}
        }
        Ok(())
    }

    /// Sends a batch, and saves the position now and then.
    async fn deliver(&mut self, held: &Held, at: &mut Progress, batch: Batch) -> Result<(), End> {
        for (seq, reason) in &batch.poison {
            self.note_parked(at, *seq, reason.clone());
        }
        if let Some(gap) = &batch.gap {
            tracing::error!(
                sink = self.id,
                first = gap.first,
                last = gap.last,
                "events were purged before they were delivered"
            );
            at.cursor.add_gap(gap.clone());
        }
        if !batch.poison.is_empty() || batch.gap.is_some() {
            // Before the others are sent: a broker that keeps the position would move past it.
            self.save(held, at).await?;
        }
        let after = Position { seq: batch.upto, at: batch.at, ..at.position };
        if !batch.messages.is_empty() {
            self.source.read_ahead(self.outlet.batch_max());
            self.send(held, at, batch.messages, after).await?;
        }
        at.position = after;
        self.state.seq.store(after.seq, Ordering::Relaxed);
        if at.saved_at.elapsed() >= SAVE_SKIPPED_AFTER {
            self.save(held, at).await?;
        }
        if at.cursor.is_full() {
            self.save(held, at).await?;
            return Err(End::Park(format!("{} events are parked", at.cursor.parked.len())));
        }
        Ok(())
    }

    /// Sends messages until each is delivered or parked.
    async fn send(
        &mut self,
        held: &Held,
        at: &mut Progress,
        mut messages: Vec<Message>,
        after: Position,
    ) -> Result<(), End> {
        while !messages.is_empty() {
            let due = at.unsaved && at.saved_at.elapsed() >= SAVE_AFTER;
            let (store, now, id) = (self.store.clone(), self.ambient.now(), self.id.clone());
            let (position, cursor) = (at.position, at.cursor.clone());
            let save = async {
                if !due {
                    return Ok(());
                }
                store::save(&*store, &id, held.fence(), position.seq, &cursor, now).await
            };
            let blocked = self.watch_blocked(held);
            let send = send_in_order(self.outlet.as_mut(), &messages, position, after);
            let work = async { tokio::join!(send, save) };
            let done = tokio::select! {
                biased;
                () = held.lost.cancelled() => return Err(End::Over),
                done = work => Ok(done),
                () = blocked.wait() => Err(End::Asked),
                () = stopped(held) => return Err(End::Over),
            };
            if let Some(reported) = blocked.reported() {
                (at.phase, at.reported) = (Phase::Failing, Some(reported));
            }
            let (sent, saved) = done?;
            if due {
                saved?;
                (at.saved_at, at.saved_seq, at.unsaved) = (Instant::now(), position.seq, false);
            }
            let Delivered { upto, refused } = sent?;
            let delivered = messages.len().min(upto);
            let parked = refused.iter().filter(|one| one.index < delivered).count();
            self.state.delivered.fetch_add((delivered - parked) as u64, Ordering::Relaxed);
            for Refused { index, reason } in &refused {
                self.note_parked(at, messages[*index].seq, reason.clone());
            }
            if !refused.is_empty() {
                // Before the others are sent: a broker that keeps the position would move past it.
                self.save(held, at).await?;
            }
            let skipped: HashSet<usize> = refused.into_iter().map(|one| one.index).collect();
            let numbered = messages.into_iter().enumerate();
            let left = numbered.filter(|(n, _)| *n >= delivered && !skipped.contains(n));
            messages = left.map(|(_, message)| message).collect();
        }
        at.unsaved = true;
        self.recovered(held, at).await;
        Ok(())
    }

    /// Does what people asked for since the last time.
    async fn obey(&mut self, held: &Held, at: &mut Progress) -> Result<(), End> {
        let spec = self.spec.borrow_and_update().clone();
        if spec.epoch > at.position.epoch {
            let seq = spec.from.unwrap_or(1) - 1;
            tracing::info!(sink = self.id, from = seq + 1, epoch = spec.epoch, "replaying");
            at.position = Position { epoch: spec.epoch, seq, at: None };
            at.cursor.epoch = spec.epoch;
            self.source.seek(seq, spec.epoch).await;
            self.save(held, at).await?;
            // Also one that was parked: the next failure is tried again.
            self.set_phase(held, at, Phase::Running, "").await;
        }
        if spec.resumes > at.cursor.resumed {
            let parked = std::mem::take(&mut at.cursor.parked);
            if !spec.discard {
                self.redeliver(held, at, parked).await?;
            }
            at.cursor.resumed = spec.resumes;
            self.state.parked.store(at.cursor.parked.len() as u64, Ordering::Relaxed);
            self.save(held, at).await?;
            self.set_phase(held, at, Phase::Running, "").await;
        }
        Ok(())
    }

    /// Sends parked events again. Those that are refused again stay parked, and those that are not sent.
    async fn redeliver(
        &mut self,
        held: &Held,
        at: &mut Progress,
        parked: Vec<ParkedEvent>,
    ) -> Result<(), End> {
        let mut left = parked.into_iter();
        while let Some(event) = left.next() {
            let sent = async {
                let messages = match self.source.single(event.seq).await {
                    // It cannot be sent, now as then: that is not the sink's failure.
                    Err(error) if error.class() != Class::Transient => {
                        let refused = vec![Refused { index: 0, reason: error.with_causes() }];
                        return Ok(Delivered { upto: 0, refused });
                    }
                    messages => messages?,
                };
                send_in_order(self.outlet.as_mut(), &messages, at.position, at.position).await
            };
            let sent = tokio::select! {
                biased;
                sent = sent => sent.map_err(End::from),
                () = held.over() => Err(End::Over),
            };
            match sent {
                Ok(Delivered { refused, .. }) => {
                    if let Some(Refused { reason, .. }) = refused.into_iter().next() {
                        self.note_parked(at, event.seq, reason);
                    }
                }
                Err(end) => {
                    at.cursor.parked.push(event);
                    at.cursor.parked.extend(left);
                    return Err(end);
                }
            }
        }
        Ok(())
    }

    fn note_parked(&self, at: &mut Progress, seq: i64, reason: String) {
        tracing::warn!(sink = self.id, seq, reason, "parked an event that cannot be delivered");
        at.cursor.park(ParkedEvent { seq, at: self.ambient.now(), reason });
        self.state.parked.store(at.cursor.parked.len() as u64, Ordering::Relaxed);
    }

    async fn save(&mut self, held: &Held, at: &mut Progress) -> Result<()> {
        let (store, now) = (self.store.as_ref(), self.ambient.now());
        store::save(store, &self.id, held.fence(), at.position.seq, &at.cursor, now).await?;
        (at.saved_at, at.saved_seq, at.unsaved) = (Instant::now(), at.position.seq, false);
        Ok(())
    }

    fn is_asked_to_resume(&self, at: &Progress) -> bool {
        let spec = self.spec.borrow();
        spec.resumes > at.cursor.resumed || spec.epoch > at.position.epoch
    }

    async fn wait_for_person(&mut self, held: &Held) -> End {
        tokio::select! {
            biased;
            () = held.over() => End::Over,
            changed = self.spec.changed() => match changed {
                Ok(()) => End::Asked,
                Err(_) => End::Over,
            },
        }
    }
}

/// Returns some time after the server is asked to stop.
async fn stopped(held: &Held) {
    held.stop.cancelled().await;
    tokio::time::sleep(STOP_GRACE).await;
}
