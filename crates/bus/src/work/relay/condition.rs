//! How a sink is: what failures lead to, and what is reported of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kernel::Error;
use tokio::time::Instant;

use super::{Held, Progress, Relay};
use crate::decide::pace::{Failures, Next};
use crate::model::Phase;
use crate::store;

/// A new reason for the same phase is written at most this often.
const REASON_EVERY: Duration = Duration::from_secs(60);

impl Relay {
    /// Decides what a failure leads to, and waits for the next try.
    pub(super) async fn failed(&mut self, held: &Held, at: &mut Progress, error: &Error) {
        if at.phase == Phase::Parked && !self.is_asked_to_resume(at) {
            return;
        }
        let (now, reason) = (self.ambient.now(), error.with_causes());
        self.state.failures.fetch_add(1, Ordering::Relaxed);
        let fraction = self.ambient.fraction();
        match at.failures.add(now, self.backoff, self.park_after, fraction) {
            Next::Park => self.park(held, at, &reason).await,
            Next::Retry(wait) => {
                let wait = Failures::wait(wait, error.retry_after(), self.backoff);
                // Once: the phase tells how long.
                if at.failures.count == 1 {
                    tracing::warn!(sink = self.id, reason, ?wait, "relaying failed; will retry");
                }
                self.state.set_condition(Phase::Failing, &reason);
                if at.failures.is_lasting(now) {
                    self.set_phase(held, at, Phase::Failing, &reason).await;
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

    pub(super) async fn park(&mut self, held: &Held, at: &mut Progress, reason: &str) {
        tracing::error!(
            sink = self.id,
            reason,
            "parked the sink; `mainstay bus resume` resumes it"
        );
        self.outlet.close().await;
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
