//! Changes the spec of a registered cluster.

use kernel::change::Wake;
use kernel::{Change, Draft, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::cluster::{self, Phase, Spec};
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
    let mut draft = Draft::of(before).spec(&spec);
    // Any request for a failed cluster is one to try again.
    if before.phase == Phase::Failed.label() && !spec.deleting {
        draft = draft.phase(&Phase::Accepted);
    }
    let write = draft.respec(event, now);
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

#[cfg(test)]
mod tests {
    use kernel::Json;

    use super::*;

    #[test]
    fn a_request_that_changes_nothing_counts_only_for_a_failed_cluster() {
        for (phase, after) in
            [(Phase::Ready, (Phase::Ready, 1)), (Phase::Failed, (Phase::Accepted, 2))]
        {
            let key = cluster::key("c1");
            let mut object = Object::new(key, "", "", "c1", phase.label(), Timestamp(0));
            object.spec = Json::encode(&Spec::default());
            let (next, change) =
                spec_change(&object, "updated", Timestamp(1), |_| true).unwrap().unwrap();
            assert_eq!((next.phase.as_str(), next.generation), (after.0.label(), after.1));
            assert_eq!(change.event().unwrap().kind, "mainstay.cluster.updated");
        }
    }
}
