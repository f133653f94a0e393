//! Observes a widget and carries out one step at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::driver::{Attempt, Decision, Requeue, Worker};
use kernel::{Error, Object, Result, Timestamp};

use super::decide::{Observed, Step, decide};
use super::model::{self, KIND};
use super::workshop::Workshop;

pub struct Widgets {
    pub workshop: Arc<dyn Workshop>,
    /// How long a lost wake-up may cost.
    pub look_again: Duration,
}

#[async_trait]
impl Worker for Widgets {
    type Observed = Observed;
    type Step = Step;

    fn kind(&self) -> &str {
        KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<Observed> {
        let store = attempt.store();
        let dependencies = store.get(&store.dependencies(&attempt.object.key).await?).await?;
        let dependents = store.get(&store.dependents(&attempt.object.key).await?).await?;
        let alive = dependents.into_iter().filter(|object| object.deleted_at.is_none());
        Ok(Observed {
            built: self.workshop.inspect(&attempt.object.key).await?,
            dependencies,
            dependents: alive.map(|object| object.key).collect(),
            look_again: self.look_again,
        })
    }

    fn decide(&self, object: &Object, observed: &Observed, now: Timestamp) -> Decision<Step> {
        match model::spec(object) {
            Ok(spec) => decide(object, &spec, observed, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<()> {
        let spec = model::spec(&attempt.object)?;
        assert!(attempt.failures >= spec.panic_times, "the widget asked for a panic");
        if let Some(reason) = spec.broken {
            return Err(Error::internal(reason, "asked for"));
        }
        if attempt.failures < spec.fail_times {
            return Err(Error::unavailable("the workshop", "asked for"));
        }
        let key = &attempt.object.key;
        match step {
            Step::Build { generation, size } => {
                self.workshop.build(key, *generation, *size, attempt.fence).await
            }
            Step::Demolish => self.workshop.demolish(key, attempt.fence).await,
        }
    }
}
