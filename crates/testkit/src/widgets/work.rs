//! The worker of widgets: observes one, and executes one step at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::driver::{Attempt, Decision, Effect, Progress, Requeue, Worker};
use kernel::{Error, Object, Result, Timestamp};

use super::decide::{Observed, Step, decide};
use super::model::{self, KIND, Widget};
use super::ports::{Order, Workshop};
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
        match Widget::from_object(object) {
            Ok(widget) => decide(object, &widget, observed, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<Effect> {
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
            Step::Build { generation, size, hold_s, polls } => {
                let order = Order {
                    key: key.clone(),
                    generation: *generation,
                    size: *size,
                    polls: *polls,
                    fence: attempt.fence,
                    effect: attempt.effect_id("build"),
                };
                self.hold(attempt, &order, *hold_s).await?;
                if self.workshop.build(&order).await? {
                    return Ok(Effect::Done);
                }
                let note = format!("the workshop builds generation {generation}");
                Ok(Effect::Pending { poll: POLL, note })
            }
            Step::Demolish => {
                self.workshop.demolish(key, attempt.fence).await?;
                Ok(Effect::Done)
            }
        }
    }

    fn timeout(&self, step: &Step) -> Duration {
        let hold_s = match step {
            Step::Build { hold_s, .. } => *hold_s,
            Step::Demolish => 0,
        };
        Duration::from_secs(30 + 2 * u64::from(hold_s))
    }
}

/// How often the workshop is asked about a build.
const POLL: Duration = Duration::from_secs(2);
/// How often a build that holds its attempt says how far it is.
const HOLD_STEP_S: u32 = 5;

impl WidgetWorker {
    /// Work that goes on within the attempt, until it is cancelled.
    async fn hold(&self, attempt: &Attempt, order: &Order, hold_s: u32) -> Result<()> {
        let steps = hold_s / HOLD_STEP_S;
        for step in 0..steps {
            let pause = tokio::time::sleep(Duration::from_secs(u64::from(HOLD_STEP_S)));
            if attempt.cancelled().run_until_cancelled(pause).await.is_none() {
                return Err(Error::Transient("it was cancelled".into()));
            }
            self.workshop.at_work(order);
            let percent = u8::try_from(step * 100 / steps).ok();
            attempt.progress(Progress { message: "building".into(), percent }).await?;
        }
        Ok(())
    }
}
