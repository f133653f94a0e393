//! One attempt to reconcile one object, from the claim to the commit that completes it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::worker::{AnyWorker, Requeue};
use super::{StoreClock, backoff};
use crate::change::{Outcome, Refusal, Work};
use crate::error::panic_message;
use crate::queue::Claim;
use crate::store::commit;
use crate::{Ambient, Change, Class, Error, Object, Result, Store, Timestamp};

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
        commit(&*self.store, self.fenced(change), self.now()).await.map(|_| ())
    }

    /// Writes in the transaction that completes this attempt, before the attempt's own change, which
    /// must build on it. Saves a commit over [`Attempt::record`] where no outside effect comes in
    /// between. Not written if the attempt fails.
    pub fn defer_to_commit(&self, change: Change) {
        self.pending_changes.lock().push(self.fenced(change));
    }

    /// Makes a change conditional on our fence.
    fn fenced(&self, mut change: Change) -> Change {
        let (key, fence, ttl) = (self.object.key.clone(), self.fence, self.lease);
        change.work = Some(Work::RenewLease { key, fence, ttl });
        change
    }

    /// Renews the lease for as long as the attempt runs. Returns only when the lease is lost:
    /// another worker has it, or it expired while the store was unreachable.
    async fn renew_lease(&self) -> Error {
        let mut end = *self.lease_end.lock();
        loop {
            tokio::time::sleep(self.lease / 3).await;
            let requested_at = Instant::now();
            match tokio::time::timeout_at(end, self.record(Change::default())).await {
                Ok(Ok(())) => {
                    end = requested_at + self.lease;
                    *self.lease_end.lock() = end;
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
}

/// How an attempt ended, for metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    Done,
    RequeueAt,
    Retry,
    Stopped,
    /// Another worker holds the object; nothing was written.
    Lost,
}

impl AttemptResult {
    pub fn label(self) -> &'static str {
        match self {
            AttemptResult::Done => "done",
            AttemptResult::RequeueAt => "requeue",
            AttemptResult::Retry => "retry",
            AttemptResult::Stopped => "stopped",
            AttemptResult::Lost => "lost",
        }
    }
}

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
        (None, _) => Ok((Change::default(), Requeue::Never)),
        (Some(attempt), None) if attempt.object.deleted_at.is_some() => {
            Ok((Change::default(), Requeue::Never))
        }
        (Some(_), None) => {
            let kind = claim.key.kind();
            Err(Error::Transient(format!("no worker is registered for kind `{kind}`")))
        }
    };
    let pending_changes =
        attempt.map(|attempt| attempt.pending_changes.into_inner()).unwrap_or_default();
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
        lost = attempt.renew_lease() => Err(lost),
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
        last.work = Some(Work::Complete { key: claim.key.clone(), fence: claim.fence, outcome });
    }
    let verdicts = context.store.commit_all(changes, now).await?;
    verdicts.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(end)
}
