//! Requests to reconcile many instances again. Each is an object whose work one replica claims and
//! carries out in pages, so that no commit grows with the number of instances.

use kernel::change::Wake;
use kernel::typed::{Kind, NoStatus};
use kernel::{Key, Timestamp};
use serde::{Deserialize, Serialize};

use super::catalogue::Catalogue;
use super::instance::Instance;

pub const KIND: &str = "recheck";

kernel::labels! { pub enum Phase { Ready = "ready" } }

/// A recheck is only its key.
#[derive(Serialize, Deserialize)]
pub struct Spec {}

impl Kind for Spec {
    type Phase = Phase;
    type Status = NoStatus;
}

kernel::labels! {
    /// Which instances are reconciled again; its label is the id.
    pub enum Recheck {
        /// Those that wait for a cluster or a version: a cluster may have room now.
        Waiting = "waiting",
        /// Those whose cluster is gone.
        Evicted = "evicted",
        /// Those that depend on the quota list.
        Quota = "quota",
        /// Those whose owner is on the deny list.
        Denied = "denied",
    }
}

impl Recheck {
    pub fn key(self) -> Key {
        Key::new(KIND, self.label())
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
            Recheck::Quota => !instance.spec.is_trial(),
            Recheck::Denied => {
                !instance.phase.is_going() && catalogue.access.denied.contains(&instance.owner)
            }
            Recheck::Waiting | Recheck::Evicted => false,
        }
    }
}
