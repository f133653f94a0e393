//! What is left to do beside a stream's own way: requests that nobody needs or nobody can carry
//! out, and whose turn it is.

use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Decision};
use super::stream::View;
use crate::model::backfill_request::BackfillRequest;
use crate::model::observation::Observation;
use crate::model::settings::Settings;
use crate::model::stream::Stream;

/// Requests for a stream that is not there: the completed ones go, the others say why they wait.
/// Those that belong to it are left to the garbage collector.
pub(super) fn without_stream(observed: &Observation<'_>) -> Decision {
    let (key, class_known) = (observed.key, observed.class.is_some());
    if class_known && !observed.streams_listed {
        return Decision::default();
    }
    let owned = |request: &BackfillRequest| {
        let name = &key.object_name.name;
        observed.class.is_some_and(|class| request.owners_of(&class.kind, name).next().is_some())
    };
    let why = match class_known {
        true => format!(
            "There is no stream {} of class {} in namespace {}; the backfill starts when there is.",
            key.object_name.name, key.class, key.object_name.namespace
        ),
        false => format!("There is no StreamClass {}; check spec.streamClass.", key.class),
    };
    let of = |request: &BackfillRequest| match request.completed {
        _ if request.deleting || owned(request) => None,
        true if class_known => Some(Action::RemoveRequest {
            request: request.object_name.clone(),
            uid: request.uid.as_str().into(),
        }),
        false if request.phase != "Failed" => {
            Some(Action::RefuseRequest { request: request.object_name.clone(), why: why.clone() })
        }
        _ => None,
    };
    Decision::of(observed.requests.iter().copied().filter_map(of))
}

/// Completed requests beyond those that are kept, the oldest first.
pub(super) fn surplus_requests(view: &View<'_>) -> Vec<Action> {
    let completed = || view.requests().filter(|request| request.completed && !request.deleting);
    let surplus = completed().count().saturating_sub(view.observed.settings.requests_kept);
    let remove = completed().take(surplus).map(|request| Action::RemoveRequest {
        request: request.object_name.clone(),
        uid: request.uid.as_str().into(),
    });
    remove.collect()
}

/// Until when another operator is left to act on a stream: it has written since this one leads.
pub fn foreign_owner_until(
    settings: &Settings,
    leading_since: Option<Timestamp>,
    stream: &Stream,
    now: Timestamp,
) -> Option<Timestamp> {
    let (_, wrote) = stream.other_writer.as_deref()?;
    let quiet = i64::try_from(settings.other_quiet_s).unwrap_or(i64::MAX);
    let until = wrote.checked_add(SignedDuration::from_secs(quiet)).ok()?;
    (*wrote > leading_since? && now < until).then_some(until)
}
