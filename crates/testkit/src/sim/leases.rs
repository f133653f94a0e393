//! What must hold of leases, due times and cancellation, whatever the clocks of the processes show: a
//! lease is not taken from its holder before it ends, what is woken for now does not wait, and work
//! that is no longer wanted ends soon.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::change::{Change, Verdict, Work};
use kernel::queue::{Claim, State};
use kernel::{Key, Object, Timestamp};
use tokio::time::Instant;

use super::flaky::Flaky;
use super::{Broken, World};
use crate::widgets::Order;

/// The claims that were given and not completed: fence, and the end by the store's clock.
pub type Leases = BTreeMap<Key, (i64, Timestamp)>;

/// The newest generation of each object, and until when attempts at older ones have to end.
pub type Generations = BTreeMap<Key, (i64, Instant)>;

/// How long work may go on that is no longer wanted: the driver looks every third of a lease; in
/// trouble some of that fails.
const CANCELLED_WITHIN: Duration = Duration::from_secs(12);
const CANCELLED_IN_TROUBLE: Duration = Duration::from_secs(30);

impl World {
    pub(super) fn note_claims(&self, claims: &[Claim], ttl: Duration) {
        let (now, mut leases) = (self.now(), self.leases.lock());
        // Ended for good, also if the clock is set back before another process claims the key.
        leases.retain(|_, (_, end)| *end > now);
        for claim in claims {
            if let Some((_, end)) = leases.insert(claim.key.clone(), (claim.fence, now.plus(ttl))) {
                let early = now.until(end);
                self.break_with(format!("{} was taken {early:?} before its lease ends", claim.key));
            }
        }
    }

    pub(super) fn note_commit(&self, changes: &[Change], verdicts: &[Verdict], caller: Timestamp) {
        let now = self.now();
        let admitted = changes.iter().zip(verdicts).filter(|(_, verdict)| verdict.is_ok());
        for (change, _) in admitted {
            let mut leases = self.leases.lock();
            match &change.work {
                Some(Work::RenewLease { key, fence, ttl, .. }) => {
                    leases.insert(key.clone(), (*fence, now.plus(*ttl)));
                }
                Some(Work::Complete { key, .. }) => drop(leases.remove(key)),
                _ => {}
            }
            if let Some(write) = &change.write {
                let Object { key, generation, .. } = &write.object;
                let mut all = self.generations.lock();
                let calm = self.calm.is_cancelled();
                let within = if calm { CANCELLED_WITHIN } else { CANCELLED_IN_TROUBLE };
                let newest = all.entry(key.clone()).or_insert((0, Instant::now()));
                if *generation > newest.0 {
                    *newest = (*generation, Instant::now() + within);
                }
            }
            for wake in change.wakes.iter().filter(|wake| wake.due <= caller) {
                let waits = self.memory.look(|tables| {
                    let row = tables.queue.get(&wake.key);
                    row.is_some_and(|row| row.state == State::Waiting && row.due > now)
                });
                if waits {
                    self.break_with(format!("{} is due and waits", wake.key));
                }
            }
        }
    }

    /// Called while an attempt is at work for a long time.
    pub(super) fn check_wanted(&self, order: &Order, process: &Flaky) {
        let Some((newest, until)) = self.generations.lock().get(&order.key).copied() else {
            return;
        };
        let late = Instant::now() > until;
        if newest > order.generation && late && !process.was_frozen_within(CANCELLED_IN_TROUBLE) {
            let Order { key, generation, .. } = order;
            self.break_with(format!("{key} is built at {generation}, {newest} is wanted for long"));
        }
    }

    fn break_with(&self, what: String) {
        self.broken.lock().get_or_insert(Broken(what));
    }
}
