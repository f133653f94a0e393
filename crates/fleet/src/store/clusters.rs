//! Constructs cluster objects.

use kernel::change::Wake;
use kernel::{Change, Draft, Object, Result, Store, Timestamp};

use crate::model::cluster::{self, Phase, Spec, Status};

/// A cluster to be registered.
#[derive(Default)]
pub struct NewCluster<'a> {
    pub id: &'a str,
    /// Empty for a cluster of the fleet's own.
    pub org: &'a str,
    pub owner: &'a str,
    pub name: &'a str,
    pub phase: Phase,
    pub spec: Spec,
    /// Why it is registered; may be empty.
    pub reason: &'a str,
}

impl NewCluster<'_> {
    /// The object, and the change that writes it. It may replace a deleted one of the same id.
    pub fn register(&self, deleted: Option<&Object>, now: Timestamp) -> (Object, Change) {
        let write = self.draft(deleted, now).respec(self.phase.label(), now);
        let object = write.object.clone();
        (
            object,
            Change { wakes: vec![Wake::for_object(&write.object, now)], ..Change::from(write) },
        )
    }

    pub fn draft<'a>(&self, deleted: Option<&'a Object>, now: Timestamp) -> Draft<'a, Spec> {
        let NewCluster { id, org, owner, name, phase, spec, reason } = self;
        let status = Status { since: now, reason: (*reason).into(), ..Status::default() };
        let new = || Draft::new(cluster::key(id), org, owner, name, now);
        let draft = deleted.map_or_else(new, Draft::of);
        draft.org(org).owner(owner).name(name).phase(phase).spec(spec).status(&status)
    }
}

/// Schedules a reconciliation of a cluster at `due`.
pub async fn wake(store: &dyn Store, id: &str, due: Timestamp, now: Timestamp) -> Result<()> {
    let wakes = vec![Wake::new(cluster::key(id), "", due)];
    let change = Change { wakes, ..Change::default() };
    kernel::store::commit(store, change, now).await.map(drop)
}
