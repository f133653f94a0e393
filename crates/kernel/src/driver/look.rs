//! One look at one object, from the claim to the commit that settles it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::backoff::backoff;
use super::worker::{AnyWorker, Next};
use crate::change::{Outcome, Refusal, Work};
use crate::queue::Claim;
use crate::store::commit;
use crate::{Ambient, Change, Class, Error, Object, Result, Store, Timestamp};

/// A claimed object, and how to write while it is being worked on.
pub struct Look {
    pub object: Object,
    /// Rises with every claim: an outside system that remembers it can refuse older ones.
    pub fence: i64,
    pub attempt: i32,
    pub(super) store: Arc<dyn Store>,
    pub(super) ambient: Ambient,
    pub(super) lease: Duration,
    /// When the lease ends unless it is kept.
    pub(super) lease_end: Instant,
    /// What is written when the look is settled, before its change.
    pub(super) first: Mutex<Vec<Change>>,
}

impl Look {
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
        commit(&*self.store, self.held(change), self.now()).await.map(|_| ())
    }

    /// Writes in the transaction that settles this look, before the look's own change, which must
    /// build on it. As good as [`Look::record`] where nothing is done outside in between, and a
    /// commit less. Not written if the look fails.
    pub fn record_with_settling(&self, change: Change) {
        self.first.lock().push(self.held(change));
    }

    /// Only if the object is still ours.
    fn held(&self, mut change: Change) -> Change {
        let until = self.now().plus(self.lease);
        change.work = Some(Work::Hold { key: self.object.key.clone(), fence: self.fence, until });
        change
    }

    /// Keeps the lease for as long as the work goes on. Ends only when the lease is lost: someone
    /// else has it, or it ran out while the store was out of reach, and someone else may have it.
    async fn hold(&self) -> Error {
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
pub enum End {
    Done,
    LookAgain,
    Retry,
    Stopped,
    /// Someone else has it by now; nothing was written.
    Lost,
}

impl End {
    pub fn label(self) -> &'static str {
        match self {
            End::Done => "done",
            End::LookAgain => "look_again",
            End::Retry => "retry",
            End::Stopped => "stopped",
            End::Lost => "lost",
        }
    }
}

/// How often in a row a stale change leads to a fresh look at once.
const STALE_AT_ONCE: i32 = 2;

/// Works on a claimed object and settles it.
pub async fn run(
    worker: Option<Arc<dyn AnyWorker>>,
    claim: Claim,
    look: Option<Look>,
    context: &Context,
) -> End {
    let decided = match (&look, worker) {
        // Gone for good: nothing to look at.
        (None, _) => Ok((Change::default(), Next::Done)),
        (Some(look), Some(worker)) => guarded(&*worker, look).await,
        (Some(_), None) => Err(Error::unavailable(
            format!("no worker for `{}` runs in this server; one", claim.key.kind()),
            "unknown kind",
        )),
    };
    let first = look.map(|look| look.first.into_inner()).unwrap_or_default();
    settle(context, &claim, first, decided).await
}

/// What settling needs beside the claim.
pub struct Context {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
}

/// Runs the worker; a panic is an error like others, and a lost lease ends the work.
async fn guarded(worker: &dyn AnyWorker, look: &Look) -> Result<(Change, Next)> {
    let work = AssertUnwindSafe(worker.look(look)).catch_unwind();
    tokio::select! {
        biased;
        done = work => done.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(key = %look.object.key, panic = text, "a worker panicked");
            Err(Error::unavailable(format!("the worker panicked ({text}); a result"), "panic"))
        }),
        lost = look.hold() => Err(lost),
    }
}

async fn settle(
    context: &Context,
    claim: &Claim,
    mut changes: Vec<Change>,
    decided: Result<(Change, Next)>,
) -> End {
    let now = context.ambient.now();
    let outcome = match decided {
        Ok((change, next)) => {
            changes.push(change);
            outcome_of(next, now)
        }
        Err(Error::Refused(Refusal::FenceLost(_))) => return End::Lost,
        Err(error) => {
            changes = vec![Change::default()];
            after_error(context, claim, &error)
        }
    };
    let end = end_of(&outcome);
    match write(context, claim, changes, outcome).await {
        Ok(()) => end,
        Err(Error::Refused(Refusal::FenceLost(_))) => End::Lost,
        Err(error @ Error::Refused(_)) => {
            let outcome = after_error(context, claim, &error);
            let end = end_of(&outcome);
            match write(context, claim, vec![Change::default()], outcome).await {
                Ok(()) => end,
                Err(_) => End::Lost,
            }
        }
        // The store does not answer: the lease runs out and someone looks again.
        Err(error) => {
            tracing::warn!(%error, key = %claim.key, "could not settle");
            End::Lost
        }
    }
}

fn outcome_of(next: Next, now: Timestamp) -> Outcome {
    match next {
        Next::Done => Outcome::Done,
        Next::After(wait) => Outcome::LookAgain { at: now.plus(wait) },
        Next::Stopped(reason) => Outcome::Stopped { reason },
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

fn end_of(outcome: &Outcome) -> End {
    match outcome {
        Outcome::Done => End::Done,
        Outcome::LookAgain { .. } => End::LookAgain,
        Outcome::Retry { .. } => End::Retry,
        Outcome::Stopped { .. } => End::Stopped,
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
        last.work = Some(Work::Settle { key: claim.key.clone(), fence: claim.fence, outcome });
    }
    let verdicts = context.store.commit_all(changes, context.ambient.now()).await?;
    for verdict in verdicts {
        verdict?;
    }
    Ok(())
}
