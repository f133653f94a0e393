//! Changes the spec of a registered cluster.

use kernel::change::{AuditDraft, EventDraft, Wake, Write};
use kernel::{Change, Error, Json, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::cluster::{self, Cluster, Spec};
use crate::model::recheck::Recheck;

/// Writes the spec if `edit` returns true, with the given event and audit entry, and returns the
/// cluster after it. Reads it again after a concurrent write.
pub async fn edit_spec(
    fleet: &Fleet,
    id: &str,
    event: &str,
    audit: Option<AuditDraft>,
    edit: impl Fn(&mut Spec) -> bool,
) -> Result<Cluster> {
    let key = cluster::key(id);
    let edited = |stored: Option<&Object>, now: Timestamp| {
        let live = stored.filter(|object| object.deleted_at.is_none());
        let mut object = live.ok_or_else(|| Error::NotFound(key.to_string()))?.clone();
        let before = object.spec.clone();
        let mut spec: Spec = before.parse()?;
        if !edit(&mut spec) {
            return Ok((None, Cluster::from_object(&object)?));
        }
        object.spec = Json::encode(&spec);
        object.generation += 1;
        object.updated_at = now;
        let cluster = Cluster::from_object(&object)?;
        let after = object.spec.clone();
        let mut wakes = vec![Wake::for_object(&object, now)];
        if !spec.deleting {
            wakes.push(Recheck::Waiting.wake(now));
        }
        let change = Change {
            wakes,
            event: Some(EventDraft::for_object(&object, event)),
            audit: audit.clone().map(|audit| AuditDraft { before, after, ..audit }),
            write: Some(Write::Update(object)),
            ..Change::default()
        };
        Ok((Some(change), cluster))
    };
    fleet.edit(&key, edited).await
}
