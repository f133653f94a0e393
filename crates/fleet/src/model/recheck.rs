//! Requests to reconcile many instances again. Each is an object whose work one replica claims and
//! carries out in pages, so that no commit grows with the number of instances.

use kernel::change::Wake;
use kernel::{Key, Timestamp};

use super::catalogue::Catalogue;
use super::instance::Instance;

pub const KIND: &str = "recheck";

/// Which instances are reconciled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recheck {
    /// Those that wait for a cluster or a version: a cluster may have room now.
    Waiting,
    /// Those whose cluster is gone.
    Evicted,
    /// Those that depend on the quota list.
    Quota,
    /// Those whose owner is on the deny list.
    Denied,
}

impl Recheck {
    pub const ALL: [Recheck; 4] =
        [Recheck::Waiting, Recheck::Evicted, Recheck::Quota, Recheck::Denied];

    pub fn id(self) -> &'static str {
        match self {
            Recheck::Waiting => "waiting",
            Recheck::Evicted => "evicted",
            Recheck::Quota => "quota",
            Recheck::Denied => "denied",
        }
    }

    pub fn of(key: &Key) -> Option<Recheck> {
        Recheck::ALL.into_iter().find(|recheck| recheck.id() == key.id())
    }

    pub fn key(self) -> Key {
        Key::new(KIND, self.id())
    }

    /// Requests it. A request while it is carried out starts it over.
    pub fn wake(self, due: Timestamp) -> Wake {
        Wake::new(self.key(), "", due)
    }

    /// The rechecks that a new catalogue needs.
    pub fn between(before: &Catalogue, after: &Catalogue) -> Vec<Recheck> {
        let denied = !after.access.denied.is_subset(&before.access.denied);
        let quota = after.quota != before.quota;
        let needed = [quota.then_some(Recheck::Quota), denied.then_some(Recheck::Denied)];
        needed.into_iter().flatten().collect()
    }

    /// Whether an instance is concerned by a change of the catalogue. Trials do not depend on the
    /// quota list.
    pub fn concerns(self, instance: &Instance, catalogue: &Catalogue) -> bool {
        match self {
            Recheck::Quota => !instance.is_trial(),
            Recheck::Denied => {
                !instance.phase.is_going() && catalogue.access.denied.contains(&instance.owner)
            }
            Recheck::Waiting | Recheck::Evicted => false,
        }
    }
}
