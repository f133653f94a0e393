//! What a domain implements for one kind: observe, decide, execute. The driver does the rest.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Attempt;
use crate::{Change, Error, Object, Result, Timestamp};

/// The three parts of an attempt. There is no separate logic for create, update and delete: the
/// same three handle every state, also the one after a crash between any two steps, and deleted
/// objects, of which something may be left outside.
#[async_trait]
pub trait Worker: Send + Sync + 'static {
    /// The observed state; "unknown" is a legal observation.
    type Observed: Send + Sync;
    /// One idempotent effect.
    type Step: Send + Sync + Debug;

    fn kind(&self) -> &str;

    /// Whether this worker reconciles objects of `kind`. Called at every attempt: kinds may come and
    /// go.
    fn covers(&self, kind: &str) -> bool {
        kind == self.kind()
    }

    async fn observe(&self, attempt: &Attempt) -> Result<Self::Observed>;

    /// Pure: no clock, no randomness, no I/O.
    fn decide(
        &self,
        object: &Object,
        observed: &Self::Observed,
        now: Timestamp,
    ) -> Decision<Self::Step>;

    async fn execute(&self, attempt: &Attempt, step: &Self::Step) -> Result<Effect>;

    /// How long a step may take. One that takes long looks at [`Attempt::cancelled`], or starts its
    /// effect outside and returns [`Effect::Pending`].
    fn timeout(&self, _step: &Self::Step) -> Duration {
        Duration::from_secs(30)
    }
}

/// How long an observation may take: several calls to other systems.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Done,
    /// It was started outside and goes on. The attempt ends without its change, and its slot is
    /// free; the next one, after `poll`, observes how far it is. `note` tells people.
    Pending {
        poll: Duration,
        note: String,
    },
}

/// The result of `decide`.
#[derive(Debug, Clone)]
pub struct Decision<Step> {
    /// Executed in order. The first failure ends the attempt, which is then retried.
    pub steps: Vec<Step>,
    /// Written in one transaction when all steps are done.
    pub change: Change,
    pub requeue: Requeue,
}

/// When to reconcile the object again.
#[derive(Debug, Clone, PartialEq)]
pub enum Requeue {
    /// Only when something changes.
    Never,
    /// When something changes, and at the latest after this long.
    After(Duration),
    /// When something changes, and at the latest then, by the store's clock.
    At(Timestamp),
    /// When something changes, and at the latest after `poll`, to see what goes on outside; `note`
    /// says what that is.
    Pending { poll: Duration, note: String },
    /// Only when a person has acted.
    Halted(String),
}

impl<Step> Decision<Step> {
    /// Nothing to do, nothing to write.
    pub fn idle(requeue: Requeue) -> Decision<Step> {
        Decision { steps: Vec::new(), change: Change::default(), requeue }
    }
}

/// A worker of any kind, as the driver holds it.
#[async_trait]
pub trait AnyWorker: Send + Sync + 'static {
    fn kind(&self) -> &str;
    fn covers(&self, kind: &str) -> bool {
        kind == self.kind()
    }
    /// Observes, decides and executes. Returns what is left to write.
    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)>;
}

#[async_trait]
impl<W: Worker> AnyWorker for W {
    fn kind(&self) -> &str {
        Worker::kind(self)
    }

    fn covers(&self, kind: &str) -> bool {
        Worker::covers(self, kind)
    }

    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)> {
        let observed = in_time(OBSERVE_TIMEOUT, "observing", self.observe(attempt)).await?;
        let Decision { steps, change, requeue } =
            self.decide(&attempt.object, &observed, attempt.now());
        for step in &steps {
            tracing::debug!(key = %attempt.object.key, ?step, "step");
            let limit = self.timeout(step);
            match in_time(limit, "the step", self.execute(attempt, step)).await? {
                Effect::Done => {}
                Effect::Pending { poll, note } => {
                    return Ok((Change::default(), Requeue::Pending { poll, note }));
                }
            }
        }
        Ok((change, requeue))
    }
}

async fn in_time<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Transient(format!("{what} did not finish within {limit:?}"))),
    }
}

pub type Workers = Vec<Arc<dyn AnyWorker>>;
