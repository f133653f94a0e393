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

    /// The kind whose API the path belongs to, and the rest of the path.
    pub fn kind_of_path<'p>(&self, path: &'p str) -> Option<(&Arc<Kind>, &'p str)> {
        let rest = path.strip_prefix("/api/")?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (api, rest) = rest.split_at(end);
        let kind = self.kinds.values().find(|kind| kind.file.api == api)?;
        Some((kind, rest))
    }
}
