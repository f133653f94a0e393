//! Counts operations as the index changes: every change passes here once, from any replica.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;

use crate::model::cluster::{self, Cluster};
use crate::model::instance::{Instance, Phase};

kernel::labels! {
    /// An operation on an instance or a cluster, as dashboards name it.
    pub enum Operation {
        Create = "create",
        /// The request to delete it.
        Deprovision = "deprovision",
        Delete = "delete",
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationCount {
    pub success: u64,
    pub total: u64,
}

#[derive(Default)]
pub struct LifecycleCounters {
    /// By kind (`cluster` is one) and operation.
    operations: Mutex<BTreeMap<(String, Operation), OperationCount>>,
    /// From creation to readiness, by kind.
    creations: Mutex<BTreeMap<String, Histogram>>,
    /// Clusters that have been ready: one that becomes ready again is not created again.
    once_ready: Mutex<HashSet<String>>,
}

impl LifecycleCounters {
    pub fn operations(&self, kind: &str, operation: Operation) -> OperationCount {
        let all = self.operations.lock();
        all.get(&(kind.to_owned(), operation)).copied().unwrap_or_default()
    }

    /// How long creations of a kind took.
    pub fn creations(&self, kind: &str) -> Histogram {
        let mut all = self.creations.lock();
        all.entry(kind.to_owned()).or_insert_with(|| Histogram::new(bounds(kind))).clone()
    }

    fn count(&self, kind: &str, operation: Operation, success: bool) {
        let mut all = self.operations.lock();
        let count = all.entry((kind.to_owned(), operation)).or_default();
        count.total += 1;
        count.success += u64::from(success);
    }

    fn created(&self, kind: &str, millis: i64) {
        self.count(kind, Operation::Create, true);
        self.creations(kind).observe(millis.max(0) as f64 / 1000.0);
    }

    /// An object without an old version is new, or existed when this process started: how it got its
    /// phase is unknown.
    pub(super) fn instance(&self, old: Option<&Instance>, new: Option<&Instance>) {
        let Some(old) = old else { return };
        let coming = matches!(old.phase, Phase::Accepted | Phase::Preparing | Phase::Provisioning);
        match new.map(|new| (new.phase, new)) {
            Some((Phase::Ready, new)) if coming => {
                self.created(&new.kind, new.status.since.0 - new.created_at.0);
            }
            Some((Phase::Failed, _)) if coming => self.count(&old.kind, Operation::Create, false),
            Some((Phase::Deprovision, _)) if old.phase != Phase::Deprovision => {
                self.count(&old.kind, Operation::Deprovision, true);
            }
            None => self.count(&old.kind, Operation::Delete, true),
            _ => {}
        }
    }

    pub(super) fn cluster(&self, old: Option<&Cluster>, new: Option<&Cluster>) {
        use cluster::Phase as S;
        let mut once_ready = self.once_ready.lock();
        match (old, new) {
            (Some(old), None) => {
                once_ready.remove(&old.id);
                self.count(cluster::KIND, Operation::Delete, true);
            }
            (old, Some(new)) if new.phase == S::Ready => {
                let is_new = once_ready.insert(new.id.clone());
                if let (true, Some(_)) = (is_new, old) {
                    self.created(cluster::KIND, new.updated_at.0 - new.created_at.0);
                }
            }
            (Some(old), Some(new)) if new.phase == S::Failed && old.phase != S::Failed => {
                self.count(cluster::KIND, Operation::Create, false);
            }
            _ => {}
        }
    }
}

/// The buckets of the existing service, and finer ones below a second, where it has none.
fn bounds(kind: &str) -> Vec<f64> {
    if kind == cluster::KIND {
        return (3..=18).map(|tenth| f64::from(tenth) * 600.0).collect();
    }
    let mut bounds = vec![0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 30.0, 60.0];
    bounds.extend((4..=20).map(|half| f64::from(half) * 30.0));
    bounds.extend([900.0, 1200.0, 1800.0, 2400.0, 3600.0, 4800.0, 7200.0]);
    bounds
}
