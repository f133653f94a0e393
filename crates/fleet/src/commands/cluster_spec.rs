//! Changes the spec of a registered cluster.

use kernel::change::{EventDraft, Wake, Write};
use kernel::{Change, Json, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::cluster::{self, Spec};
use crate::model::recheck::Recheck;

/// The object with the edited spec, and the change that writes it; none if `edit` returns false.
pub fn spec_change(
    before: &Object,
    event: &str,
    now: Timestamp,
    edit: impl Fn(&mut Spec) -> bool,
) -> Result<Option<(Object, Change)>> {
    let mut object = before.clone();
    let mut spec: Spec = object.spec.parse()?;
    if !edit(&mut spec) {
        return Ok(None);
    }
    object.spec = Json::encode(&spec);
    object.generation += 1;
    object.updated_at = now;
    let mut wakes = vec![Wake::for_object(&object, now)];
    if !spec.deleting {
        wakes.push(Recheck::Waiting.wake(now));
    }
    let change = Change {
        wakes,
        event: Some(EventDraft::for_object(&object, event)),
        write: Some(Write::Update(object.clone())),
        ..Change::default()
    };
    Ok(Some((object, change)))
}

/// Writes the spec of a cluster that still exists. Reads it again after a concurrent write.
pub async fn edit_spec(
    fleet: &Fleet,
    id: &str,
    event: &str,
    edit: impl Fn(&mut Spec) -> bool,
) -> Result<()> {
    let edited = |stored: Option<&Object>, now: Timestamp| {
        let live = stored.filter(|object| object.deleted_at.is_none());
        let Some(object) = live else { return Ok((None, ())) };
        Ok((spec_change(object, event, now, &edit)?.map(|(_, change)| change), ()))
    };
    fleet.edit(&cluster::key(id), edited).await
}
