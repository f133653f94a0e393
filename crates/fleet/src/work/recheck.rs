//! Wakes many instances in pages. The queue has the request until the last page is written: after a
//! crash another replica starts over, and waking twice does no harm.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::Wake;
use kernel::driver::{Attempt, Decision, Effect, Requeue, Worker};
use kernel::{Change, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::instance::{Instance, Phase};
use crate::model::recheck::{KIND, Recheck};

/// Wake-ups in one commit: few enough not to delay other commits.
pub const PAGE: usize = 256;
/// An instance that is still being prepared reads the index of its replica, which has the deletion
/// of a cluster only after a moment.
const EARLY_PAUSE: Duration = Duration::from_secs(1);

pub struct RecheckWorker(pub Arc<Fleet>);

#[async_trait]
impl Worker for RecheckWorker {
    type Observed = Vec<Wake>;
    type Step = Vec<Wake>;

    fn kind(&self) -> &str {
        KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<Vec<Wake>> {
        let (fleet, now) = (&self.0, attempt.now());
        let Some(recheck) = Recheck::parse(attempt.object.key.id()) else { return Ok(Vec::new()) };
        fleet.index.catch_up().await?;
        let catalogue = fleet.catalogue();
        let mut wakes = Vec::new();
        match recheck {
            Recheck::Waiting => wakes = fleet.index.wakes_of_waiting(&catalogue, now),
            Recheck::Evicted => {
                let evicted = fleet.index.evicted(&catalogue);
                wakes.extend(evicted.iter().map(|row| wake_evicted(&row.instance, now)));
            }
            Recheck::Quota | Recheck::Denied => {
                for kind in catalogue.kinds.keys() {
                    fleet.index.each(kind, |instance| {
                        let concerned = recheck.concerns(instance, &catalogue);
                        wakes.extend(concerned.then(|| instance.wake(now)));
                    });
                }
            }
        }
        Ok(wakes)
    }

    fn decide(&self, _: &Object, wakes: &Vec<Wake>, _: Timestamp) -> Decision<Vec<Wake>> {
        let steps = wakes.chunks(PAGE).map(<[Wake]>::to_vec).collect();
        Decision { steps, ..Decision::idle(Requeue::Never) }
    }

    async fn execute(&self, attempt: &Attempt, page: &Vec<Wake>) -> Result<Effect> {
        attempt.record(Change { wakes: page.clone(), ..Change::default() }).await?;
        Ok(Effect::Done)
    }
}

fn wake_evicted(instance: &Instance, now: Timestamp) -> Wake {
    let early = matches!(instance.phase, Phase::Accepted | Phase::Preparing);
    instance.wake(if early { now.plus(EARLY_PAUSE) } else { now })
}
