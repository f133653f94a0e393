//! Decides about requests: whether a widget may be created or changed, and what that writes. Pure.

use kernel::change::{Edge, Take, Wake};
use kernel::{Change, Draft, Error, Key, Object, Result, Timestamp};

use super::audit;
use crate::widgets::model::{
    DEPENDENCIES_MAX, KIND, Phase, Request, Spec, Status, Widget, name_counter, quota_counter, spec,
};

/// The change that creates a widget: the object, its quota and name, its queue row, the event and
/// the audit entry. `dependencies` as they were read.
pub fn create(
    request: Request,
    dependencies: &[Object],
    quota: i64,
    now: Timestamp,
) -> Result<(Change, Object)> {
    if request.depends_on.len() > DEPENDENCIES_MAX {
        return Err(Error::invalid(
            "depends_on",
            format!("has more than {DEPENDENCIES_MAX} entries"),
        ));
    }
    for key in &request.depends_on {
        match dependencies.iter().find(|object| object.key == *key) {
            Some(object) if object.deleted_at.is_none() && spec(object)?.deleting => {
                return Err(Error::Conflict(format!("depends_on: {key} is being deleted")));
            }
            Some(object) if object.deleted_at.is_none() && object.org == request.org => {}
            _ => return Err(Error::invalid("depends_on", format!("{key} does not exist"))),
        }
    }
    let Request { id, org, owner, name, description, labels, spec, depends_on } = request;
    let draft = Draft::new(Key::new(KIND, &id), &org, &owner, &name, now);
    let draft = draft.description(description).labels(labels);
    let draft = draft.phase(&Phase::Accepted).spec(&spec).status(&Status::default());
    let write = draft.create("created");
    let object = write.object.clone();
    let holder = object.key.to_string();
    let take = |counter, limit| Take { counter, holder: holder.clone(), amount: 1, limit };
    let change = Change {
        takes: vec![take(quota_counter(&org), quota), take(name_counter(&org, &name), 1)],
        expects: dependencies.iter().map(|object| (object.key.clone(), object.revision)).collect(),
        depends_on: Some(depends_on.into_iter().map(Edge::from).collect()),
        wakes: vec![Wake::for_object(&object, now)],
        audit: Some(audit(&owner, "widget.create", &object, None)),
        ..Change::from(write)
    };
    Ok((change, object))
}

/// The change that writes a new spec.
pub fn respec(object: &Object, actor: &str, spec: &Spec, now: Timestamp) -> Result<Change> {
    let before = Widget::from_object(object)?;
    if before.spec.deleting {
        return Err(Error::Conflict(format!("{} is being deleted", object.key)));
    }
    let (phase, what, action) = if spec.deleting {
        (Phase::Deleting, "deleting", "widget.delete")
    } else {
        (before.phase, "updated", "widget.update")
    };
    let write = Draft::of(object).phase(&phase).spec(spec).respec(what, now);
    Ok(Change {
        wakes: vec![Wake::for_object(object, now)],
        audit: Some(audit(actor, action, &write.object, Some(&before.spec))),
        ..Change::from(write)
    })
}
