//! One look at one object, from the claim to the commit that settles it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::backoff::backoff;
use super::worker::{AnyWorker, Requeue};
use crate::change::{Outcome, Refusal, Work};
use crate::queue::Claim;
use crate::store::commit;
use crate::{Ambient, Change, Class, Error, Object, Result, Store, Timestamp};

/// A claimed object, and how to write while it is being worked on.
pub struct Attempt {
    pub object: Object,
    /// Rises with every claim: an outside system that remembers it can refuse older ones.
    pub fence: i64,
    pub failures: i32,
    pub(super) store: Arc<dyn Store>,
    pub(super) ambient: Ambient,
    pub(super) lease: Duration,
    /// When the lease ends unless it is kept.
    pub(super) lease_end: Instant,
    /// What is written when the look is settled, before its change.
    pub(super) pending_changes: Mutex<Vec<Change>>,
}

impl Attempt {
    pub fn now(&self) -> Timestamp {
        self.ambient.now()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub fn ambient(&self) -> &Ambient {
        &self.ambient
    }

    /// Writes between two steps. Refused if someone else has taken over.
    pub async fn record(&self, change: Change) -> Result<()> {
        commit(&*self.store, self.fenced(change), self.now()).await.map(|_| ())
    }

    /// Writes in the transaction that settles this attempt, before the look's own change, which must
    /// build on it. As good as [`Attempt::record`] where nothing is done outside in between, and a
    /// commit less. Not written if the look fails.
    pub fn defer_to_commit(&self, change: Change) {
        self.pending_changes.lock().push(self.fenced(change));
    }

    /// Only if the object is still ours.
    fn fenced(&self, mut change: Change) -> Change {
        let until = self.now().plus(self.lease);
        change.work =
            Some(Work::RenewLease { key: self.object.key.clone(), fence: self.fence, until });
        change
    }

    /// Keeps the lease for as long as the work goes on. Ends only when the lease is lost: someone
    /// else has it, or it ran out while the store was out of reach, and someone else may have it.
    async fn renew_lease(&self) -> Error {
        let mut end = self.lease_end;
        loop {
            tokio::time::sleep(self.lease / 3).await;
            let asked = Instant::now();
            match tokio::time::timeout_at(end, self.record(Change::default())).await {
                Ok(Ok(())) => end = asked + self.lease,
                Ok(Err(error @ Error::Refused(_))) => return error,
                Ok(Err(error)) => {
                    tracing::warn!(%error, key = %self.object.key, "could not keep the lease");
                }
                Err(_) => {}
            }
            if Instant::now() >= end {
                return Refusal::FenceLost(self.object.key.to_string()).into();
            }
        }
    }
}

/// How a look ended, for metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    Done,
    RequeueAt,
    Retry,
    Stopped,
    /// Someone else has it by now; nothing was written.
    Lost,
}

impl AttemptResult {
    pub fn label(self) -> &'static str {
        match self {
            AttemptResult::Done => "done",
            AttemptResult::RequeueAt => "look_again",
            AttemptResult::Retry => "retry",
            AttemptResult::Stopped => "stopped",
            AttemptResult::Lost => "lost",
        }
    }
}

/// How often in a row a stale change leads to a fresh look at once.
const STALE_AT_ONCE: i32 = 2;

/// Works on a claimed object and settles it.
pub async fn run_attempt(
    worker: Option<Arc<dyn AnyWorker>>,
    claim: Claim,
    attempt: Option<Attempt>,
    context: &Context,
) -> AttemptResult {
    let decided = match (&attempt, worker) {
        // Gone for good: nothing to look at.
        (None, _) => Ok((Change::default(), Requeue::Never)),
        (Some(attempt), Some(worker)) => with_panic_and_lease(&*worker, attempt).await,
        (Some(_), None) => Err(Error::unavailable(
            format!("no worker for `{}` runs in this server; one", claim.key.kind()),
            "unknown kind",
        )),
    };
    let pending_changes =
        attempt.map(|attempt| attempt.pending_changes.into_inner()).unwrap_or_default();
    complete(context, &claim, pending_changes, decided).await
}

/// What settling needs remaining the claim.
pub struct Context {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
}

/// Runs the worker; a panic is an error like others, and a lost lease ends the work.
async fn with_panic_and_lease(
    worker: &dyn AnyWorker,
    attempt: &Attempt,
) -> Result<(Change, Requeue)> {
    let work = AssertUnwindSafe(worker.reconcile(attempt)).catch_unwind();
    tokio::select! {
        biased;
        done = work => done.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(key = %attempt.object.key, panic = text, "a worker panicked");
            Err(Error::unavailable(format!("the worker panicked ({text}); a result"), "panic"))
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
    let now = context.ambient.now();
    let outcome = match decided {
        Ok((change, next)) => {
            changes.push(change);
            outcome_of(next, now)
        }
        Err(Error::Refused(Refusal::FenceLost(_))) => return AttemptResult::Lost,
        Err(error) => {
            changes = vec![Change::default()];
            after_error(context, claim, &error)
        }
    };
    let end = end_of(&outcome);
    match write(context, claim, changes, outcome).await {
        Ok(()) => end,
        Err(Error::Refused(Refusal::FenceLost(_))) => AttemptResult::Lost,
        Err(error @ Error::Refused(_)) => {
            let outcome = after_error(context, claim, &error);
            let end = end_of(&outcome);
            match write(context, claim, vec![Change::default()], outcome).await {
                Ok(()) => end,
                Err(_) => AttemptResult::Lost,
            }
        }
        // The store does not answer: the lease runs out and someone looks again.
        Err(error) => {
            tracing::warn!(%error, key = %claim.key, "could not settle");
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

/// What may pass is tried again, ever more slowly; what will not needs a person. When only the
/// world moved on while we worked, a fresh look comes at once; a worker that makes its own change
/// stale each time is slowed down like any other.
fn after_error(context: &Context, claim: &Claim, error: &Error) -> Outcome {
    let reason = error.to_string();
    let stale = matches!(error, Error::Refused(Refusal::Stale { .. }));
    match error.class() {
        _ if stale && claim.attempt < STALE_AT_ONCE => {
            Outcome::Retry { at: context.ambient.now(), reason }
        }
        Class::Transient | Class::Conflict => {
            let wait = backoff(claim.attempt, context.ambient.fraction());
            tracing::info!(key = %claim.key, attempt = claim.attempt, ?wait, reason, "will try again");
            Outcome::Retry { at: context.ambient.now().plus(wait), reason }
        }
        _ => {
            tracing::warn!(key = %claim.key, reason, "stopped");
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

/// Writes the changes in one transaction; the last one settles.
async fn write(
    context: &Context,
    claim: &Claim,
    mut changes: Vec<Change>,
    outcome: Outcome,
) -> Result<()> {
    let several = changes.len() > 1;
    if let Some(last) = changes.last_mut() {
        last.follows = several;
        last.work = Some(Work::Complete { key: claim.key.clone(), fence: claim.fence, outcome });
    }
    let verdicts = context.store.commit_all(changes, context.ambient.now()).await?;
    for verdict in verdicts {
        verdict?;
    }
    Ok(())
}
