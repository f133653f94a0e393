//! Which instances a new catalogue affects.

use std::collections::BTreeSet;

use crate::model::catalogue::Catalogue;
use crate::model::instance::Instance;

/// The differences between two catalogues that affect existing instances.
#[derive(Debug, PartialEq, Eq)]
pub struct CatalogueChange {
    /// Owners that the deny list names now and did not before.
    denied: BTreeSet<String>,
    quota: bool,
}

impl CatalogueChange {
    pub fn between(before: &Catalogue, after: &Catalogue) -> CatalogueChange {
        let denied = after.access.denied.difference(&before.access.denied);
        CatalogueChange { denied: denied.cloned().collect(), quota: after.quota != before.quota }
    }

    pub fn is_empty(&self) -> bool {
        self.denied.is_empty() && !self.quota
    }

    /// Whether an instance must be reconciled. Trials do not depend on the quota list.
    pub fn affects(&self, instance: &Instance) -> bool {
        self.quota && !instance.is_trial() || self.denied.contains(&instance.owner)
    }
}
