//! Changes the spec of a registered cluster.

use kernel::change::Wake;
use kernel::{Change, Draft, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::cluster::{self, Spec};
use crate::model::recheck::Recheck;

/// The object with the edited spec, and the change that writes it; none if `edit` returns false.
pub fn spec_change(
    before: &Object,
    event: &'static str,
    now: Timestamp,
    edit: impl Fn(&mut Spec) -> bool,
) -> Result<Option<(Object, Change)>> {
    let mut spec: Spec = before.spec.parse()?;
    if !edit(&mut spec) {
        return Ok(None);
    }
    let mut wakes = vec![Wake::for_object(before, now)];
    if !spec.deleting {
        wakes.push(Recheck::Waiting.wake(now));
    }
    let write = Draft::of(before).spec(&spec).respec(event, now);
    Ok(Some((write.object.clone(), Change { wakes, ..Change::from(write) })))
}

/// Writes the spec of a cluster that still exists. Reads it again after a concurrent write.
pub async fn edit_spec(
    fleet: &Fleet,
    id: &str,
    event: &'static str,
    edit: impl Fn(&mut Spec) -> bool,
) -> Result<()> {
    let edited = |stored: Option<&Object>, now: Timestamp| {
        let live = stored.filter(|object| object.deleted_at.is_none());
        let Some(object) = live else { return Ok((None, ())) };
        Ok((spec_change(object, event, now, &edit)?.map(|(_, change)| change), ()))
    };
    fleet.edit(&cluster::key(id), edited).await
}
