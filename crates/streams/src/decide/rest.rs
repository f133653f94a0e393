//! What is left to do beside a stream's own way: requests that nobody needs or nobody can carry
//! out, and whose turn it is.

use jiff::{SignedDuration, Timestamp};

use super::command::{Command, Decision};
use super::stream::View;
use crate::index::Index;
use crate::model::Key;
use crate::model::class::Class;
use crate::model::request::Request;
use crate::model::stream::Stream;

/// Requests for a stream that is not there: the completed ones go, the others say why they wait.
/// Those that belong to it are left to the garbage collector.
pub(super) fn without_stream(index: &Index, key: &Key, class: Option<&Class>) -> Decision {
    let class_known = class.is_some();
    if class_known && !index.is_listed(&key.class) {
        return Decision::default();
    }
    let owned = |request: &Request| {
        class.is_some_and(|class| request.owners_of(&class.kind, &key.place.name).next().is_some())
    };
    let why = match class_known {
        true => format!(
            "There is no stream {} of class {} in namespace {}; the backfill starts when there is.",
            key.place.name, key.class, key.place.namespace
        ),
        false => format!("There is no StreamClass {}; check spec.streamClass.", key.class),
    };
    let of = |request: &Request| match request.completed {
        _ if request.deleting || owned(request) => None,
        true if class_known => Some(Command::RemoveRequest {
            request: request.place.clone(),
            uid: request.uid.as_str().into(),
        }),
        false if request.phase != "Failed" => {
            Some(Command::RefuseRequest { request: request.place.clone(), why: why.clone() })
        }
        _ => None,
    };
    Decision::of(index.requests(key).filter_map(of))
}

/// Completed requests beyond those that are kept, the oldest first.
pub(super) fn surplus_requests(view: &View<'_>) -> Vec<Command> {
    let completed = || view.requests().filter(|request| request.completed && !request.deleting);
    let surplus = completed().count().saturating_sub(view.index.settings.requests_kept);
    let remove = completed().take(surplus).map(|request| Command::RemoveRequest {
        request: request.place.clone(),
        uid: request.uid.as_str().into(),
    });
    remove.collect()
}

/// Until when another operator is left to act on a stream: it has written since this one leads.
pub fn others_turn(index: &Index, stream: &Stream, now: Timestamp) -> Option<Timestamp> {
    let since = index.leading_since?;
    let (_, wrote) = stream.other_writer.as_deref()?;
    let quiet = i64::try_from(index.settings.other_quiet_s).unwrap_or(i64::MAX);
    let until = wrote.checked_add(SignedDuration::from_secs(quiet)).ok()?;
    (*wrote > since && now < until).then_some(until)
}
