//! The simulated workshop: slow, failing, losing answers. It remembers fences and refuses old
//! ones, and writes down everything that was really done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kernel::{Error, Key, Result};
use parking_lot::Mutex;

use super::flaky::Flaky;
use crate::widgets::{Order, Workshop};

#[derive(Default)]
pub struct SimWorkshop {
    standing: Mutex<BTreeMap<Key, (i64, u32)>>,
    fences: Mutex<BTreeMap<Key, i64>>,
    /// Builds by the id of their effect: what they are of, and how often to ask until they stand.
    builds: Mutex<BTreeMap<String, (Key, i64, u32)>>,
    /// Every effect that was new: the key and the generation; 0 for a demolition.
    done: Mutex<Vec<(Key, i64)>>,
    crashes: AtomicUsize,
}

impl SimWorkshop {
    pub fn standing(&self) -> BTreeMap<Key, (i64, u32)> {
        self.standing.lock().clone()
    }

    pub fn done(&self) -> Vec<(Key, i64)> {
        self.done.lock().clone()
    }

    /// The builds that were started, by the id of their effect.
    pub fn builds(&self) -> BTreeMap<String, (Key, i64, u32)> {
        self.builds.lock().clone()
    }

    pub fn count_crash(&self) {
        self.crashes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn crashes(&self) -> usize {
        self.crashes.load(Ordering::Relaxed)
    }

    fn fence(&self, key: &Key, fence: i64) -> Result<()> {
        let mut fences = self.fences.lock();
        let seen = fences.entry(key.clone()).or_default();
        if fence < *seen {
            return Err(Error::unavailable("the workshop", "a newer worker was here"));
        }
        *seen = fence;
        Ok(())
    }
}

/// The workshop as one process reaches it.
pub struct From(pub Arc<Flaky>);

impl From {
    async fn call(&self) -> Result<&SimWorkshop> {
        self.0.pass().await;
        tokio::time::sleep(self.0.world.millis(0, 200)).await;
        if self.0.world.unlucky(0.02) {
            tokio::time::sleep(Duration::from_secs(45)).await;
        }
        self.0.fail_sometimes(0.1)?;
        Ok(&self.0.world.workshop)
    }

    /// It happened, but the answer may be lost.
    async fn answered(&self) -> Result<()> {
        self.0.pass().await;
        self.0.fail_sometimes(0.1)
    }
}

#[async_trait]
impl Workshop for From {
    async fn inspect(&self, key: &Key) -> Result<Option<i64>> {
        Ok(self.call().await?.standing.lock().get(key).map(|(generation, _)| *generation))
    }

    async fn build(&self, order: &Order) -> Result<bool> {
        let workshop = self.call().await?;
        let Order { key, generation, size, .. } = order;
        workshop.fence(key, order.fence)?;
        let stands = {
            let mut builds = workshop.builds.lock();
            let build = builds
                .entry(order.effect.clone())
                .or_insert_with(|| (key.clone(), *generation, order.polls));
            let stands = build.2 == 0;
            build.2 = build.2.saturating_sub(1);
            stands
        };
        if stands {
            let before = workshop.standing.lock().insert(key.clone(), (*generation, *size));
            if before.is_none_or(|(before, _)| before != *generation) {
                workshop.done.lock().push((key.clone(), *generation));
            }
        }
        self.answered().await?;
        Ok(stands)
    }

    fn at_work(&self, order: &Order) {
        self.0.world.check_wanted(order, &self.0);
    }

    async fn demolish(&self, key: &Key, fence: i64) -> Result<()> {
        let workshop = self.call().await?;
        workshop.fence(key, fence)?;
        if workshop.standing.lock().remove(key).is_some() {
            workshop.done.lock().push((key.clone(), 0));
        }
        self.answered().await
    }
}
