//! How a sink is: what failures lead to, and what is reported of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernel::change::LeaseFence;
use kernel::log::EventFilter;
use kernel::{Ambient, Error, Store};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Held, Progress, Relay};
use crate::decide::pace::{Failures, Next};
use crate::model::{Phase, Position, Spec};
use crate::store;
use crate::work::state::SinkState;

/// A new reason for the same phase is written at most this often.
const REASON_EVERY: Duration = Duration::from_secs(60);

/// A broker that takes no messages for this long is reported.
const BLOCKED_MAX: Duration = Duration::from_secs(2);

/// Reports a broker that takes no messages, as RabbitMQ does while it has an alarm.
pub(super) struct Blocked {
    why: Option<watch::Receiver<Option<String>>>,
    id: String,
    store: Arc<dyn Store>,
    ambient: Ambient,
    state: Arc<SinkState>,
    fence: LeaseFence,
    spec: watch::Receiver<Spec>,
    /// The reason that the store may have, and since when.
    reported: Mutex<Option<(String, Instant)>>,
}

impl Blocked {
    /// Returns when a person asks for something meanwhile.
    pub async fn wait(&self) {
        match self.why.clone() {
            Some(why) => self.follow(why).await,
            None => std::future::pending().await,
        }
    }

    async fn follow(&self, mut why: watch::Receiver<Option<String>>) {
        let mut spec = self.spec.clone();
        while why.wait_for(Option::is_some).await.is_ok() {
            tokio::time::sleep(BLOCKED_MAX).await;
            let Some(alarm) = why.borrow_and_update().clone() else { continue };
            let reason = format!("the broker takes no messages: {alarm}");
            self.state.set_condition(Phase::Failing, &reason);
            // Before it is written: this may be dropped while the store commits.
            *self.reported.lock() = Some((reason.clone(), Instant::now()));
            let (store, fence) = (self.store.as_ref(), self.fence.clone());
            let phase = Phase::Failing;
            if let Err(error) =
                store::report(store, &self.ambient, &self.id, fence, phase, &reason).await
            {
                tracing::warn!(sink = self.id, %error, "writing the phase failed");
            }
            tokio::select! {
                freed = why.wait_for(Option::is_none) => if freed.is_err() { break },
                Ok(()) = spec.changed() => return,
            }
        }
        std::future::pending().await
    }

    /// What may have been written of it.
    pub fn reported(&self) -> Option<(String, Instant)> {
        self.reported.lock().take()
    }
}

impl Relay {
    /// Decides what a failure leads to, and waits for the next try.
    pub(super) async fn failed(&mut self, held: &Held, at: &mut Progress, error: &Error) {
        if at.phase == Phase::Parked && !self.is_asked_to_resume(at) {
            return;
        }
        let reason = error.with_causes();
        self.state.failures.fetch_add(1, Ordering::Relaxed);
        self.note_lag(at.position).await;
        // What was read is read again, and needs no memory meanwhile.
        self.source.seek(at.position.seq, at.position.epoch).await;
        let fraction = self.ambient.fraction();
        match at.failures.add(Instant::now(), self.backoff, self.park_after, fraction) {
            Next::Park => self.park(held, at, &reason).await,
            Next::Retry(wait) => {
                let wait = Failures::wait(wait, error.retry_after(), self.backoff);
                // Once: the phase tells how long.
                if at.failures.count == 1 {
                    tracing::warn!(sink = self.id, reason, ?wait, "relaying failed; will retry");
                }
                self.state.set_condition(Phase::Failing, &reason);
                // A connection that is lost is usually back soon; one that never was may be a mistake.
                if at.failures.is_lasting() || !at.was_open {
                    self.set_phase(held, at, Phase::Failing, &reason).await;
                }
                if self.park_after.is_some() && at.failures.is_lasting() {
                    let tried_ms = at.failures.tried.as_millis();
                    at.cursor.tried_ms = u64::try_from(tried_ms).unwrap_or(u64::MAX);
                    // What is not saved is tried for longer after a restart.
                    let _ = self.save(held, at).await;
                }
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(wait) => {}
                    Ok(()) = self.spec.changed() => {}
                    () = held.over() => {}
                }
            }
        }
    }

    /// What says that the other side takes nothing, while a `send` waits for it.
    pub(super) fn watch_blocked(&self, held: &Held) -> Blocked {
        Blocked {
            why: self.outlet.blocked(),
            id: self.id.clone(),
            store: self.store.clone(),
            ambient: self.ambient.clone(),
            state: self.state.clone(),
            fence: held.fence(),
            spec: self.spec.clone(),
            reported: Mutex::default(),
        }
    }

    /// Finds out since when events wait that nobody could send.
    pub(super) async fn note_lag(&mut self, position: Position) {
        let next = self.store.events(position.seq, &EventFilter::default(), 1).await;
        if let Ok(Some(event)) = next.map(|events| events.into_iter().next()) {
            self.state.waiting_since.store(event.at.0, Ordering::Relaxed);
        }
    }

    pub(super) async fn park(&mut self, held: &Held, at: &mut Progress, reason: &str) {
        tracing::error!(
            sink = self.id,
            reason,
            "parked the sink; `mainstay bus resume` resumes it"
        );
        self.outlet.close().await;
        self.source.seek(at.position.seq, at.position.epoch).await;
        self.set_phase(held, at, Phase::Parked, reason).await;
        at.failures = Failures::default();
        // Only a later request resumes it.
        if !self.spec.has_changed().unwrap_or(false) {
            at.cursor.resumed = self.spec.borrow().resumes;
            // What is not saved is tried once more after a restart.
            let _ = self.save(held, at).await;
        }
    }

    pub(super) async fn recovered(&mut self, held: &Held, at: &mut Progress) {
        if at.failures.count == 0 && at.phase == Phase::Running {
            return;
        }
        if at.failures.count > 0 {
            tracing::info!(sink = self.id, failures = at.failures.count, "relaying again");
        }
        at.failures = Failures::default();
        at.cursor.tried_ms = 0;
        self.set_phase(held, at, Phase::Running, "").await;
    }

    /// Says how the sink is, here and in the store. What cannot be written is said at the next change.
    pub(super) async fn set_phase(
        &mut self,
        held: &Held,
        at: &mut Progress,
        phase: Phase,
        reason: &str,
    ) {
        self.state.set_condition(phase, reason);
        let known = match &at.reported {
            Some((there, since)) => there == reason || since.elapsed() < REASON_EVERY,
            None => phase == Phase::Running,
        };
        if at.phase == phase && known {
            return;
        }
        at.phase = phase;
        at.reported = Some((reason.to_owned(), Instant::now()));
        let store = self.store.as_ref();
        let reported =
            store::report(store, &self.ambient, &self.id, held.fence(), phase, reason).await;
        if let Err(error) = reported {
            tracing::warn!(sink = self.id, %error, "writing the phase failed");
        }
    }
}
