//! What must hold of leases and due times, whatever the clocks of the processes show: a lease is not
//! taken from its holder before it ends, and what is woken for now does not wait.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::change::{Change, Verdict, Work};
use kernel::queue::{Claim, State};
use kernel::{Key, Timestamp};

use super::{Broken, World};

/// The claims that were given and not completed: fence, and the end by the store's clock.
pub type Leases = BTreeMap<Key, (i64, Timestamp)>;

impl World {
    pub(super) fn note_claims(&self, claims: &[Claim], ttl: Duration) {
        let now = self.now();
        for claim in claims {
            let held = self.leases.lock().insert(claim.key.clone(), (claim.fence, now.plus(ttl)));
            if let Some((_, end)) = held.filter(|(_, end)| *end > now) {
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
                Some(Work::RenewLease { key, fence, ttl }) => {
                    leases.insert(key.clone(), (*fence, now.plus(*ttl)));
                }
                Some(Work::Complete { key, .. }) => drop(leases.remove(key)),
                _ => {}
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

    fn break_with(&self, what: String) {
        self.broken.lock().get_or_insert(Broken(what));
    }
}
