//! What a widget is: its spec, its status, its phases, and the changes that a caller can ask for.

use kernel::change::{AuditDraft, CommandRecord, EventDraft, Release, Take, Wake, Write};
use kernel::{Change, Error, Json, Key, Labels, Object, Result, Timestamp};
use serde::{Deserialize, Serialize};

pub const KIND: &str = "widget";

/// What the owner wants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    pub size: u32,
    /// How many looks fail before one succeeds.
    pub fail_times: i32,
    /// How many looks panic before one succeeds.
    pub panic_times: i32,
    /// Fails for good, with this reason.
    pub broken: Option<String>,
    /// It should go.
    pub deleting: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// What it waits for.
    pub waiting_for: Vec<Key>,
    pub size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Accepted,
    Waiting,
    Ready,
    Deleting,
    Deleted,
}

impl Phase {
    pub fn label(self) -> &'static str {
        match self {
            Phase::Accepted => "accepted",
            Phase::Waiting => "waiting",
            Phase::Ready => "ready",
            Phase::Deleting => "deleting",
            Phase::Deleted => "deleted",
        }
    }
}

/// A new widget, as its creator asks for it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub id: String,
    pub org: String,
    pub owner: String,
    pub name: String,
    pub description: String,
    pub labels: Labels,
    pub spec: Spec,
    pub depends_on: Vec<Key>,
}

pub const DEPENDENCIES_MAX: usize = 32;

fn quota_counter(org: &str) -> String {
    format!("widgets/{org}")
}

fn name_counter(org: &str, name: &str) -> String {
    format!("name/{KIND}/{org}/{name}")
}

/// The change that creates a widget: the object, its quota and name, its place in the queue, the
/// event and the audit entry. `dependencies` as they were read.
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
    let key = Key::new(KIND, &request.id);
    let holder = key.to_string();
    let take = |counter, limit| Take { counter, holder: holder.clone(), amount: 1, limit };
    let mut object = Object::new(
        key.clone(),
        &request.org,
        &request.owner,
        &request.name,
        Phase::Accepted.label(),
        now,
    );
    object.description = request.description;
    object.labels = request.labels;
    object.spec = Json::encode(&request.spec);
    object.status = Json::encode(&Status::default());
    let change = Change {
        takes: vec![
            take(quota_counter(&request.org), quota),
            take(name_counter(&request.org, &request.name), 1),
        ],
        expects: dependencies.iter().map(|object| (object.key.clone(), object.revision)).collect(),
        depends_on: Some(request.depends_on),
        wakes: vec![Wake::for_object(&object, now)],
        event: Some(EventDraft::of(&object, "created")),
        audit: Some(audit(&request.owner, "widget.create", &object, None)),
        write: Some(Write::Create(object.clone())),
        ..Change::default()
    };
    Ok((change, object))
}

/// The change that a new spec makes of a widget.
pub fn respec(object: &Object, actor: &str, spec: &Spec, now: Timestamp) -> Result<Change> {
    let before = self::spec(object)?;
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
        event: Some(EventDraft::of(&object, if spec.deleting { "deleting" } else { "updated" })),
        audit: Some(audit(actor, action, &object, Some(&before))),
        write: Some(Write::Update(object)),
        ..Change::default()
    })
}

pub fn spec(object: &Object) -> Result<Spec> {
    object.spec.parse()
}

pub fn releases(object: &Object) -> Vec<Release> {
    let release = |counter| Release { counter, holder: object.key.to_string() };
    vec![release(quota_counter(&object.org)), release(name_counter(&object.org, &object.name))]
}

pub fn audit(actor: &str, action: &str, object: &Object, before: Option<&Spec>) -> AuditDraft {
    AuditDraft {
        actor: actor.into(),
        action: action.into(),
        target: object.key.to_string(),
        org: object.org.clone(),
        outcome: "accepted".into(),
        before: Json::encode(&before),
        after: object.spec.clone(),
        ..AuditDraft::default()
    }
}

/// The same change, carried out once whatever happens to its answer.
pub fn as_command(change: Change, command: CommandRecord) -> Change {
    Change { command: Some(command), ..change }
}
