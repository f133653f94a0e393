//! One attempt to reconcile one object, from the claim to the commit that completes it.

use std::convert::Infallible;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dependents::wake_dependents;
use super::worker::{AnyWorker, Requeue};
use super::{StoreClock, backoff};
use crate::admission::dependents_of;
use crate::change::{EventDraft, Outcome, Refusal, Work};
use crate::error::panic_message;
use crate::queue::Claim;
use crate::store::commit;
use crate::{Ambient, Change, Class, Error, Json, Object, Result, Store, Timestamp};

/// A claimed object, and the means to write while it is reconciled.
pub struct Attempt {
    pub object: Object,
    /// Rises with every claim: an outside system that remembers it can refuse older ones.
    pub fence: i64,
    /// Failed attempts in a row before this one.
    pub failures: i32,
    pub(super) store: Arc<dyn Store>,
    pub(super) ambient: Ambient,
    pub(super) clock: StoreClock,
    pub(super) lease: Duration,
    /// When the lease ends unless it is renewed.
    pub(super) lease_end: Mutex<Instant>,
    pub(super) cancelled: CancellationToken,
    /// When progress was last written.
    pub(super) progress_at: Mutex<Option<Instant>>,
    /// Written in the commit that completes the attempt, before the attempt's own change.
    pub(super) pending_changes: Mutex<Vec<Change>>,
}

impl Attempt {
    /// By the store's clock, which all replicas share.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub fn ambient(&self) -> &Ambient {
        &self.ambient
    }

    /// How long the lease still lasts, if it is not renewed: what is started for this attempt must
    /// not go on for longer without asking again.
    pub fn lease_remaining(&self) -> Duration {
        self.lease_end.lock().saturating_duration_since(Instant::now())
    }

    /// Commits between two steps. Refused if another worker has taken over.
    pub async fn record(&self, change: Change) -> Result<()> {
        self.commit(self.fenced(change)).await
    }

    /// Writes in the transaction that completes this attempt, before the attempt's own change, which
    /// must build on it. Saves a commit over [`Attempt::record`] where no outside effect comes in
    /// between. Not written if the attempt fails.
    pub fn defer_to_commit(&self, change: Change) {
        self.pending_changes.lock().push(self.fenced(change));
    }

    /// Cancelled when the result is no longer wanted: the lease is lost, the driver drains, or the
    /// object has a newer generation. A long step ends then, with an error; it is not counted, and
    /// the next attempt begins at once.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Says how far a step is: in the queue row, and as an event that carries no new revision. At
    /// most once a second; what comes in between is dropped.
    pub async fn progress(&self, progress: Progress) -> Result<()> {
        let now = Instant::now();
        {
            let mut last = self.progress_at.lock();
            if last.is_some_and(|at| now < at + PROGRESS_EVERY) {
                return Ok(());
            }
            *last = Some(now);
        }
        let event = EventDraft {
            data: Some(Json::encode(&progress)),
            ..EventDraft::for_object(&self.object, "progress")
        };
        let cause = Some(self.object.cause.clone());
        let change = Change { event: Some(event), cause, ..Change::default() };
        self.commit(self.noted(change, Some(progress.to_string()))).await
    }

    /// The idempotency token of a step for systems outside: the same for every attempt at the same
    /// step for the same generation of the object.
    pub fn effect_id(&self, step: &str) -> String {
        let Object { key, generation, .. } = &self.object;
        let digest = Sha256::digest(format!("{key}\n{generation}\n{step}"));
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Makes a change conditional on our fence.
    fn fenced(&self, change: Change) -> Change {
        self.noted(change, None)
    }

    fn noted(&self, mut change: Change, note: Option<String>) -> Change {
        let (key, fence, ttl) = (self.object.key.clone(), self.fence, self.lease);
        change.work = Some(Work::RenewLease { key, fence, ttl, note });
        change
    }

    async fn commit(&self, change: Change) -> Result<()> {
        commit(&*self.store, change, self.now()).await.map(|_| ())
    }

    /// Cancels the attempt soon after its object got a newer generation, on whichever replica.
    async fn cancel_when_outdated(&self) -> Infallible {
        let events = self.store.wakeups().events();
        let mut seen = events.get();
        loop {
            // Most attempts end before; the others read at most this often.
            tokio::time::sleep(OUTDATED_EVERY).await;
            seen = events.above(seen).await;
            if self.is_outdated().await {
                self.cancelled.cancel();
                return std::future::pending().await;
            }
        }
    }

    /// Renews the lease for as long as the attempt runs, and cancels it if the object has a newer
    /// generation: wake-ups may get lost. Returns only when the lease is lost: another worker has it, or it expired while
    /// the store was unreachable.
    async fn renew_lease(&self) -> Error {
        let mut end = *self.lease_end.lock();
        loop {
            tokio::time::sleep(self.lease / 3).await;
            let requested_at = Instant::now();
            match tokio::time::timeout_at(end, self.record(Change::default())).await {
                Ok(Ok(())) => {
                    end = requested_at + self.lease;
                    *self.lease_end.lock() = end;
                    if self.is_outdated().await {
                        self.cancelled.cancel();
                    }
                }
                Ok(Err(error @ Error::Refused(_))) => return error,
                Ok(Err(error)) => {
                    tracing::warn!(%error, key = %self.object.key, "renewing the lease failed");
                }
                Err(_) => {}
            }
            if Instant::now() >= end {
                return Refusal::FenceLost(self.object.key.to_string()).into();
            }
        }
    }

    async fn is_outdated(&self) -> bool {
        let current = self.store.object(&self.object.key).await;
        matches!(current, Ok(Some(object)) if object.generation > self.object.generation)
    }
}

const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const OUTDATED_EVERY: Duration = Duration::from_millis(500);

/// How far a step is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Progress {
    pub message: String,
    /// If it is known.
    pub percent: Option<u8>,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.percent {
            Some(percent) => write!(f, "{} ({percent} %)", self.message),
            None => f.write_str(&self.message),
        }
    }
}

crate::labels! {
    /// How an attempt ended, for metrics and logs.
    pub enum AttemptResult {
        Done = "done",
        RequeueAt = "requeue",
        /// Something that was started outside goes on.
        Pending = "pending",
        Retry = "retry",
        Stopped = "stopped",
        /// Another worker holds the object; nothing was written.
        Lost = "lost",
    }
}

const AT_ONCE: Requeue = Requeue::After(Duration::ZERO);

/// How many attempts in a row a stale change is retried without backoff.
const STALE_AT_ONCE: i32 = 2;

/// Reconciles a claimed object and completes its queue row.
pub async fn run_attempt(
    worker: Option<Arc<dyn AnyWorker>>,
    claim: Claim,
    attempt: Option<Attempt>,
    context: &Context,
) -> AttemptResult {
    let decided = match (&attempt, worker) {
        (Some(attempt), Some(worker)) => with_panic_and_lease(&*worker, attempt).await,
        // There is no object, or a deleted one of a kind that nobody knows any more.
        (None, _) => match dependents_of(&claim.key) {
            Some(of) => wake_dependents(context, &of, &claim.note).await,
            None => Ok((Change::default(), Requeue::Never)),
        },
        (Some(attempt), None) if attempt.object.deleted_at.is_some() => {
            Ok((Change::default(), Requeue::Never))
        }
        (Some(_), None) => {
            let kind = claim.key.kind();
            Err(Error::Transient(format!("no worker is registered for kind `{kind}`")))
        }
    };
    let (pending_changes, cancelled) = attempt.map_or_else(Default::default, |attempt| {
        (attempt.pending_changes.into_inner(), attempt.cancelled.is_cancelled())
    });
    let decided = match decided {
        // Ended early because its result is no longer wanted: no failure.
        Err(error) if cancelled && !matches!(error, Error::Refused(_)) => {
            tracing::info!(key = %claim.key, %error, "attempt cancelled");
            return complete(context, &claim, Vec::new(), Ok((Change::default(), AT_ONCE))).await;
        }
        decided => decided,
    };
    complete(context, &claim, pending_changes, decided).await
}

/// What completing needs apart from the claim.
pub struct Context {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub(super) clock: StoreClock,
}

/// Runs the worker. A panic is an error like any other; a lost lease ends the attempt.
async fn with_panic_and_lease(
    worker: &dyn AnyWorker,
    attempt: &Attempt,
) -> Result<(Change, Requeue)> {
    let work = AssertUnwindSafe(worker.reconcile(attempt)).catch_unwind();
    tokio::select! {
        biased;
        done = work => done.unwrap_or_else(|panic| {
            let text = panic_message(panic.as_ref());
            tracing::error!(key = %attempt.object.key, panic = text, "worker panicked");
            Err(Error::Transient(format!("the worker panicked: {text}")))
        }),
        lost = attempt.renew_lease() => {
            attempt.cancelled.cancel();
            Err(lost)
        }
        never = attempt.cancel_when_outdated() => match never {},
    }
}

async fn complete(
    context: &Context,
    claim: &Claim,
    mut changes: Vec<Change>,
    decided: Result<(Change, Requeue)>,
) -> AttemptResult {
    let now = context.clock.now();
    let outcome = match decided {
        Ok((change, next)) => {
            changes.push(change);
            outcome_of(next, now)
        }
        Err(Error::Refused(Refusal::FenceLost(_))) => return AttemptResult::Lost,
        Err(error) => {
            changes = vec![Change::default()];
            after_error(context, claim, &error, now)
        }
    };
    match write(context, claim, changes, outcome, now).await {
        Ok(end) => end,
        Err(Error::Refused(Refusal::FenceLost(_))) => AttemptResult::Lost,
        Err(error @ Error::Refused(_)) => {
            let outcome = after_error(context, claim, &error, now);
            let written = write(context, claim, vec![Change::default()], outcome, now).await;
            written.unwrap_or(AttemptResult::Lost)
        }
        // The store is unreachable: the lease expires, and the key is claimed again.
        Err(error) => {
            tracing::warn!(%error, key = %claim.key, "completing the attempt failed");
            AttemptResult::Lost
        }
    }
}

fn outcome_of(requeue: Requeue, now: Timestamp) -> Outcome {
    match requeue {
        Requeue::Never => Outcome::Done,
        Requeue::After(wait) => Outcome::RequeueAt { at: now.plus(wait) },
        Requeue::At(at) => Outcome::RequeueAt { at },
        Requeue::Pending { poll, note } => Outcome::Pending { at: now.plus(poll), note },
        Requeue::Halted(reason) => Outcome::Stopped { reason },
    }
}

/// Retries transient errors with growing backoff; anything else waits for a person. A stale change
/// is retried at once, since only our read was outdated; a worker that makes its own change stale
/// each time backs off like any other.
fn after_error(context: &Context, claim: &Claim, error: &Error, now: Timestamp) -> Outcome {
    let reason = error.with_causes();
    let stale = matches!(error, Error::Refused(Refusal::Stale { .. }));
    match error.class() {
        _ if stale && claim.attempt < STALE_AT_ONCE => Outcome::Retry { at: now, reason },
        Class::Transient | Class::Conflict => {
            let wait = backoff(claim.attempt, context.ambient.fraction());
            tracing::info!(key = %claim.key, attempt = claim.attempt, ?wait, reason, "attempt failed; will retry");
            Outcome::Retry { at: now.plus(wait), reason }
        }
        _ => {
            tracing::warn!(key = %claim.key, reason, "attempt failed; waiting for a person");
            Outcome::Stopped { reason }
        }
    }
}

fn end_of(outcome: &Outcome) -> AttemptResult {
    match outcome {
        Outcome::Done => AttemptResult::Done,
        Outcome::RequeueAt { .. } => AttemptResult::RequeueAt,
        Outcome::Pending { .. } => AttemptResult::Pending,
        Outcome::Retry { .. } => AttemptResult::Retry,
        Outcome::Stopped { .. } => AttemptResult::Stopped,
    }
}

/// Writes the changes in one transaction; the last one completes the queue row.
async fn write(
    context: &Context,
    claim: &Claim,
    mut changes: Vec<Change>,
    outcome: Outcome,
    now: Timestamp,
) -> Result<AttemptResult> {
    let end = end_of(&outcome);
    let several = changes.len() > 1;
    if let Some(last) = changes.last_mut() {
        last.follows = several;
        last.settles = last.write.is_some() && last.audit.is_some() && !last.hop;
        last.work = Some(Work::Complete { key: claim.key.clone(), fence: claim.fence, outcome });
    }
    let verdicts = context.store.commit_all(changes, now).await?;
    verdicts.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(end)
}
