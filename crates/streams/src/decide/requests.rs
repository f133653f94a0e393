//! BackfillRequests that cannot be carried out or are no longer kept, and streams that another
//! operator owns.

use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Decision};
use super::stream::View;
use crate::model::backfill_request::BackfillRequest;
use crate::model::observation::Observation;
use crate::model::settings::Settings;

/// Handles requests for a stream that does not exist: completed ones are deleted, others get the
/// reason why they wait. Those that the stream owned are left to the garbage collector.
pub(super) fn without_stream(observed: &Observation<'_>) -> Decision {
    let (key, class_known) = (observed.key, observed.class.is_some());
    if class_known && !observed.streams_listed {
        return Decision::default();
    }
    let owned = |request: &BackfillRequest| {
        let name = &key.object_name.name;
        observed.class.is_some_and(|class| request.owners_of(&class.kind, name).next().is_some())
    };
    let why = if class_known {
        format!(
            "There is no stream {} of class {} in namespace {}; the backfill starts when there is.",
            key.object_name.name, key.class, key.object_name.namespace
        )
    } else {
        format!("There is no StreamClass {}; check spec.streamClass.", key.class)
    };
    let of = |request: &BackfillRequest| {
        let (name, uid) = (request.object_name.clone(), request.uid.as_str().into());
        if request.deleting || owned(request) {
            None
        } else if request.completed {
            class_known.then_some(Action::RemoveRequest { request: name, uid })
        } else {
            let refuse = Action::RefuseRequest { request: name, why: why.clone() };
            (request.phase != "Failed").then_some(refuse)
        }
    };
    Decision::of(observed.requests.iter().copied().filter_map(of))
}

/// Deletes the oldest completed requests beyond the number that is kept.
pub(super) fn surplus_requests(view: &View<'_>) -> Vec<Action> {
    let completed = || view.requests().filter(|request| request.completed && !request.deleting);
    let surplus = completed().count().saturating_sub(view.observed.settings.requests_kept);
    let remove = completed().take(surplus).map(|request| Action::RemoveRequest {
        request: request.object_name.clone(),
        uid: request.uid.as_str().into(),
    });
    remove.collect()
}

/// Until when a stream is left to another operator, whose last write this one saw at `seen`, after
/// it became leader. All times are of this machine: the API server's clock may differ.
pub fn foreign_owner_until(
    settings: &Settings,
    leading_since: Option<Timestamp>,
    seen: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let seen = seen?;
    let quiet = i64::try_from(settings.other_quiet_s).unwrap_or(i64::MAX);
    let until = seen.checked_add(SignedDuration::from_secs(quiet)).ok()?;
    (seen > leading_since? && now < until).then_some(until)
}
