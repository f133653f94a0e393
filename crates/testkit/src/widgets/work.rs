//! The worker of widgets: observes one, and executes one step at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::driver::{Attempt, Decision, Requeue, Worker};
use kernel::{Error, Object, Result, Timestamp};

use super::decide::{Observed, Step, decide};
use super::model::{self, KIND};
use super::ports::Workshop;
use super::store;

pub struct WidgetWorker {
    pub workshop: Arc<dyn Workshop>,
    /// The delay that a lost wake-up may cost.
    pub recheck: Duration,
}

#[async_trait]
impl Worker for WidgetWorker {
    type Observed = Observed;
    type Step = Step;

    fn kind(&self) -> &str {
        KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<Observed> {
        let key = &attempt.object.key;
        Ok(Observed {
            built: self.workshop.inspect(key).await?,
            dependencies: store::dependencies(attempt.store(), key).await?,
            dependents: store::dependents(attempt.store(), key).await?,
            recheck: self.recheck,
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
