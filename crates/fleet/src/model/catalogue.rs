//! Everything that the fleet reads from files: kinds, quota, access rules, clouds, clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::kind::Kind;
use super::providers::{ClusterEntry, Providers};
use super::quota::{AccessRules, QuotaList};

#[derive(Debug)]
pub struct Catalogue {
    pub kinds: BTreeMap<String, Arc<Kind>>,
    pub quota: QuotaList,
    pub access: AccessRules,
    pub providers: Providers,
    pub clusters: Vec<ClusterEntry>,
}

impl Catalogue {
    pub fn kind(&self, name: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(name)
    }
}
