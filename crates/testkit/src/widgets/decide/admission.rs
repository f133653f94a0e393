//! Decides about requests: whether a widget may be created or changed, and what that writes. Pure.

use kernel::change::{EventDraft, Take, Wake, Write};
use kernel::{Change, Error, Json, Key, Object, Result, Timestamp};

use super::audit;
use crate::widgets::model::{
    DEPENDENCIES_MAX, KIND, Phase, Request, Spec, Status, name_counter, quota_counter, spec,
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
    let object = new_object(&request, now);
    let holder = object.key.to_string();
    let take = |counter, limit| Take { counter, holder: holder.clone(), amount: 1, limit };
    let change = Change {
        takes: vec![
            take(quota_counter(&request.org), quota),
            take(name_counter(&request.org, &request.name), 1),
        ],
        expects: dependencies.iter().map(|object| (object.key.clone(), object.revision)).collect(),
        depends_on: Some(request.depends_on),
        wakes: vec![Wake::for_object(&object, now)],
        event: Some(EventDraft::for_object(&object, "created")),
        audit: Some(audit(&request.owner, "widget.create", &object, None)),
        write: Some(Write::Create(object.clone())),
        ..Change::default()
    };
    Ok((change, object))
}

fn new_object(request: &Request, now: Timestamp) -> Object {
    let Request { id, org, owner, name, .. } = request;
    let mut object =
        Object::new(Key::new(KIND, id), org, owner, name, Phase::Accepted.label(), now);
    object.description.clone_from(&request.description);
    object.labels.clone_from(&request.labels);
    object.spec = Json::encode(&request.spec);
    object.status = Json::encode(&Status::default());
    object
}

/// The change that writes a new spec.
pub fn respec(object: &Object, actor: &str, spec: &Spec, now: Timestamp) -> Result<Change> {
    let before = crate::widgets::model::spec(object)?;
    if before.deleting {
        return Err(Error::Conflict(format!("{} is being deleted", object.key)));
    }
    let mut object = object.clone();
    object.spec = Json::encode(spec);
    object.generation += 1;
    object.updated_at = now;
    if spec.deleting {
        object.phase = Phase::Deleting.label().into();
    }
    let action = if spec.deleting { "widget.delete" } else { "widget.update" };
    Ok(Change {
        wakes: vec![Wake::for_object(&object, now)],
        event: Some(EventDraft::for_object(
            &object,
            if spec.deleting { "deleting" } else { "updated" },
        )),
        audit: Some(audit(actor, action, &object, Some(&before))),
        write: Some(Write::Update(object)),
        ..Change::default()
    })
}
