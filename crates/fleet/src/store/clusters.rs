//! Constructs cluster objects.

use kernel::change::{EventDraft, Wake, Write};
use kernel::{Change, Json, Object, Result, Store, Timestamp};

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
        let NewCluster { id, org, owner, name, phase, spec, reason } = self;
        let mut object = Object::new(cluster::key(id), org, owner, name, phase.label(), now);
        object.spec = Json::encode(spec);
        let reason = (*reason).to_owned();
        object.status = Json::encode(&Status { since: now, reason, ..Status::default() });
        if let Some(deleted) = deleted {
            object.revision = deleted.revision;
            object.generation = deleted.generation + 1;
        }
        let change = Change {
            wakes: vec![Wake::for_object(&object, now)],
            event: Some(EventDraft::for_object(&object, phase.label())),
            write: Some(write(object.clone(), deleted)),
            ..Change::default()
        };
        (object, change)
    }
}

/// Creates an object, or updates the stored one.
pub fn write(object: Object, stored: Option<&Object>) -> Write {
    if stored.is_some() { Write::Update(object) } else { Write::Create(object) }
}

/// Schedules a reconciliation of a cluster at `due`.
pub async fn wake(store: &dyn Store, id: &str, due: Timestamp, now: Timestamp) -> Result<()> {
    let wakes = vec![Wake::new(cluster::key(id), "", due)];
    let change = Change { wakes, ..Change::default() };
    kernel::store::commit(store, change, now).await.map(drop)
}
