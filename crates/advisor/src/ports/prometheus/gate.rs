//! Lets as many queries through as the pace allows, and none while the data source asks to wait.

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::client::Prometheus;
use super::pace::{Class, Epoch, Pace};

pub struct Gate {
    state: Mutex<State>,
    /// Something changed for those who wait.
    changed: Notify,
}

struct State {
    pace: Pace,
    open: usize,
    closed_until: Option<Instant>,
}

/// The permission for one query, until it is dropped.
pub struct Slot<'a> {
    gate: &'a Gate,
    epoch: Epoch,
    begun: Instant,
}

impl Gate {
    /// For a data source that nothing was asked of yet.
    pub fn of(client: &Prometheus) -> Self {
        Self::new(Pace::new(client.concurrency_max()))
    }

    pub fn new(pace: Pace) -> Self {
        let state = State { pace, open: 0, closed_until: None };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    pub async fn enter(&self) -> Slot<'_> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            match self.try_enter() {
                Ok(slot) => return slot,
                Err(None) => changed.await,
                Err(Some(until)) => {
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }

    /// A slot, or until when there is none if that is known.
    fn try_enter(&self) -> Result<Slot<'_>, Option<Instant>> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if let Some(until) = state.closed_until.filter(|until| *until > now) {
            return Err(Some(until));
        }
        if state.open >= state.pace.limit() {
            return Err(None);
        }
        state.open += 1;
        Ok(Slot { gate: self, epoch: state.pace.epoch(), begun: now })
    }
}

impl Slot<'_> {
    pub fn answered(self, class: Class) {
        let took = self.begun.elapsed();
        self.gate.state.lock().pace.answered(self.epoch, class, took);
    }

    /// The data source has more queries than it can answer. It may have asked for a pause, which is
    /// one for all queries.
    pub fn overloaded(self, pause: Option<Duration>) {
        let mut state = self.gate.state.lock();
        state.pace.overloaded(self.epoch);
        let until = pause.map(|pause| Instant::now() + pause);
        state.closed_until = state.closed_until.max(until);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.gate.state.lock().open -= 1;
        self.gate.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn as_many_enter_as_the_pace_allows_and_none_during_a_pause() {
        let gate = Gate::new(Pace::new(2));
        let (one, two) = (gate.enter().await, gate.enter().await);
        let mut waiting = pin!(gate.enter());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(one);
        let three = waiting.as_mut().now_or_never().expect("there is room");
        drop(two);

        let begun = Instant::now();
        three.overloaded(Some(Duration::from_secs(7)));
        let one = gate.enter().await;
        assert_eq!(begun.elapsed().as_secs(), 7);
        assert!(gate.enter().now_or_never().is_none(), "it is halved");
        one.answered(Class::default());
        assert!(gate.enter().now_or_never().is_some());
    }
}
