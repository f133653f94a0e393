//! Constructs cluster objects.

use kernel::change::Wake;
use kernel::{Change, Json, Object, Result, Store, Timestamp};

use crate::model::cluster::{self, Phase, Spec, Status};

/// A cluster to be registered.
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
    pub fn object(&self, now: Timestamp) -> Object {
        let NewCluster { id, org, owner, name, phase, spec, reason } = self;
        let mut object = Object::new(cluster::key(id), org, owner, name, phase.label(), now);
        object.spec = Json::encode(spec);
        let reason = (*reason).to_owned();
        object.status = Json::encode(&Status { since: now, reason, ..Status::default() });
        object
    }

    /// The object that replaces a deleted one of the same id.
    pub fn object_after(&self, deleted: &Object, now: Timestamp) -> Object {
        let (revision, generation) = (deleted.revision, deleted.generation + 1);
        Object { revision, generation, ..self.object(now) }
    }
}

/// Schedules a reconciliation of a cluster at `due`.
pub async fn wake(store: &dyn Store, id: &str, due: Timestamp, now: Timestamp) -> Result<()> {
    let wakes = vec![Wake::new(cluster::key(id), "", due)];
    let change = Change { wakes, ..Change::default() };
    kernel::store::commit(store, change, now).await.map(drop)
}
