//! The commands of every kind's instances: create, update, delete, promote, and what admins do.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::command::{AnyCommand, AuditFields, CommandContext, Decided};
use kernel::identity::{Action, Principal};
use kernel::{App, Change, Error, Json, Key, Object, Result};
use serde_json::json;

use super::instance_create;
use crate::Fleet;
use crate::decide::instance::lifecycle::Event;
use crate::decide::instance::{instance_change, transition};
use crate::decide::promotion;
use crate::model::admin_patch::AdminPatch;
use crate::model::catalogue::Catalogue;
use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Promotion};
use crate::model::kind::{Extra, Kind};
use crate::model::payload::{Payload, check_field, check_length, parse_object};
use crate::store::access;

kernel::labels! {
    /// What is done to an instance, as it is in the name of the command: `kafka.create`.
    pub enum Verb {
        Create = "create",
        Update = "update",
        Delete = "delete",
        Promote = "promote",
        AdminPatch = "admin.patch",
        AdminDelete = "admin.delete",
    }
}

impl Verb {
    fn exists(self, kind: &Kind) -> bool {
        self != Verb::Promote || kind.has(Extra::Promote)
    }
}

/// A command of one kind of one catalogue.
pub struct InstanceCommand {
    pub fleet: Arc<Fleet>,
    pub catalogue: Arc<Catalogue>,
    pub kind: Arc<Kind>,
    verb: Verb,
    name: String,
}

impl InstanceCommand {
    pub fn new(
        fleet: &Arc<Fleet>,
        catalogue: &Arc<Catalogue>,
        kind: &Arc<Kind>,
        verb: Verb,
    ) -> InstanceCommand {
        let name = format!("{}.{}", kind.name(), verb.label());
        let (fleet, catalogue, kind) = (fleet.clone(), catalogue.clone(), kind.clone());
        InstanceCommand { fleet, catalogue, kind, verb, name }
    }

    /// The command of this name, if the catalogue has its kind.
    pub fn find(fleet: &Arc<Fleet>, name: &str) -> Option<InstanceCommand> {
        let (kind, label) = name.split_once('.')?;
        let catalogue = fleet.catalogue();
        let kind = catalogue.kind(kind)?;
        let verb = Verb::parse(label)?;
        verb.exists(kind).then(|| InstanceCommand::new(fleet, &catalogue, kind, verb))
    }

    /// The names of all of them.
    pub fn names(fleet: &Fleet) -> Vec<String> {
        let catalogue = fleet.catalogue();
        let names = catalogue.kinds.values().flat_map(|kind| {
            let verbs = Verb::ALL.into_iter().filter(|verb| verb.exists(kind));
            verbs.map(|verb| format!("{}.{}", kind.name(), verb.label()))
        });
        names.collect()
    }

    /// The instance as its owner is shown it.
    pub(super) fn render(&self, instance: &Instance) -> Result<Json> {
        let view = self.fleet.scope(&self.kind, instance, None);
        let template = match self.verb {
            Verb::AdminPatch => &self.kind.admin,
            _ => &self.kind.response,
        };
        let text = String::from_utf8(template.render(&view));
        let text = text.map_err(|e| Error::internal("the rendered instance is not UTF-8", e))?;
        Json::stored(text)
    }

    /// Returns the error for an instance that the sender may not see, or not change.
    fn check_access(&self, who: &Principal, id: &str, instance: Option<&Instance>) -> Result<()> {
        let resource = &self.kind.file.resource;
        let missing = |message: String| Err(ErrorCode::NotFound.error(message));
        let may_change = |instance: &Instance| who.org_admin || instance.owner == who.subject;
        match (self.verb, instance) {
            (Verb::AdminPatch | Verb::AdminDelete, Some(_)) => Ok(()),
            (Verb::Delete, Some(instance))
                if access::can_see(who, instance) && may_change(instance) =>
            {
                Ok(())
            }
            (Verb::AdminPatch | Verb::AdminDelete | Verb::Delete, _) => {
                missing(format!("{resource} with id='{id}' not found"))
            }
            (_, Some(instance)) if access::can_see(who, instance) => {
                if may_change(instance) {
                    return Ok(());
                }
                let why = "User not authorized to perform this action";
                Err(ErrorCode::Unauthorized.error(why))
            }
            _ => {
                let user = &who.subject;
                missing(format!("{resource} for user {user} with id='{id}' not found"))
            }
        }
    }

    async fn update(&self, cx: &CommandContext<'_>, body: &Payload) -> Result<Decided<Json>> {
        let update = InstanceUpdate::read(&self.kind, body)?;
        let object = cx.subject()?;
        let instance = Instance::from_object(object)?;
        if let (Some(owner), Some(ams)) = (&update.owner, &self.fleet.ports.ams)
            && *owner != instance.owner
        {
            let account = ams.account(owner).await?;
            if account.is_none_or(|account| account.banned || account.org != cx.principal.org) {
                let why = format!("user {owner} is not a member of the organisation");
                return Err(ErrorCode::BadRequest.error(why));
            }
        }
        let mut next = instance.clone();
        next.owner = update.owner.unwrap_or(next.owner);
        next.spec.fields.extend(update.fields);
        let change = (next != instance).then(|| instance_change(object, &next, "updated", cx.now));
        self.edited(cx, 200, change, next)
    }

    fn promote(&self, cx: &CommandContext<'_>, body: &Payload) -> Result<Decided<Json>> {
        let promotion = read_promotion(&self.kind, body)?;
        let object = cx.subject()?;
        let instance = Instance::from_object(object)?;
        promotion::check(&self.kind, &instance, &promotion)?;
        let mut next = instance.clone();
        next.spec.promotion = Some(promotion);
        let mut change = instance_change(object, &next, "promoting", cx.now);
        change.wakes.push(instance.wake(cx.now));
        self.edited(cx, 202, Some(change), next)
    }

    fn delete(&self, cx: &CommandContext<'_>) -> Result<Decided<Json>> {
        let object = cx.subject()?;
        let instance = Instance::from_object(object)?;
        let (mut change, next) = transition(object, &instance, Event::Delete, cx.now);
        change.wakes.push(instance.wake(cx.now));
        let mut decided = self.edited(cx, 202, Some(change), next)?;
        let (file, id) = (&self.kind.file, &instance.id);
        // Satisfies every generated client.
        decided.reply = Json::encode(&json!({
            "reason": format!("{} is being deleted", file.title),
            "operation_id": cx.request_id,
            "id": id,
            "kind": file.title,
            "href": file.href(id),
            "code": format!("{}-0", file.codes),
        }));
        Ok(decided)
    }

    async fn admin_patch(&self, cx: &CommandContext<'_>, body: &Payload) -> Result<Decided<Json>> {
        let patch = AdminPatch::from_payload(&self.kind, body)?;
        patch.check_not_empty(&self.kind)?;
        let object = cx.subject()?;
        let instance = Instance::from_object(object)?;
        let cluster = self.fleet.index.cluster(&instance.status.cluster_id);
        let (next, event) = patch.apply(&self.kind, &instance, cluster.as_deref(), cx.now)?;
        let (mut change, after) = match event {
            Some(event) => transition(object, &next, event, cx.now),
            None if next == instance => (Change::default(), next),
            None => (instance_change(object, &next, "updated", cx.now), next),
        };
        if change.write.is_some() {
            change.wakes.push(instance.wake(cx.now));
        }
        self.edited(cx, 200, Some(change), after)
    }

    /// Writes the change as one of the desired state, unless it writes nothing.
    fn edited(
        &self,
        cx: &CommandContext<'_>,
        status: u16,
        change: Option<Change>,
        mut after: Instance,
    ) -> Result<Decided<Json>> {
        let object = cx.subject()?;
        let Some((mut change, write)) =
            change.and_then(|mut change| change.write.take().map(|write| (change, write)))
        else {
            let instance = Instance::from_object(object)?;
            return Ok(Decided::new(status, self.render(&instance)?, None));
        };
        let write = after.draft(object).respec(write.event, cx.now);
        let (before, new) = (object.spec.clone(), write.object.spec.clone());
        let audit = AuditFields { before, after: new, ..AuditFields::of(object) };
        change.write = Some(write);
        after.updated_at = cx.now;
        Ok(Decided::new(status, self.render(&after)?, audit).change(change))
    }
}

#[async_trait]
impl AnyCommand for InstanceCommand {
    fn name(&self) -> &str {
        &self.name
    }

    fn action(&self) -> Action {
        match self.verb {
            Verb::Create | Verb::Update | Verb::Delete | Verb::Promote => Action::OrgUser,
            Verb::AdminPatch => Action::AdminWrite,
            Verb::AdminDelete => Action::AdminFull,
        }
    }

    async fn subject(&self, app: &App, who: &Principal, key: &Key) -> Result<Option<Arc<Object>>> {
        self.fleet.index.catch_up().await?;
        let row = self.fleet.index.get(self.kind.name(), key.id());
        self.check_access(who, key.id(), row.as_deref().map(|row| &row.instance))?;
        let object = app.store.object(key).await?.filter(|object| object.deleted_at.is_none());
        Ok(Some(object.ok_or_else(|| ErrorCode::NotFound.default_error())?))
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>> {
        if self.action() == Action::OrgUser {
            access::check(&self.catalogue, cx.principal)?;
        }
        let body = Payload(parse_object(body.text().as_bytes())?);
        match self.verb {
            Verb::Create => instance_create::decide(self, cx, &body).await,
            Verb::Update => self.update(cx, &body).await,
            Verb::Promote => self.promote(cx, &body),
            Verb::Delete | Verb::AdminDelete => self.delete(cx),
            Verb::AdminPatch => self.admin_patch(cx, &body).await,
        }
    }
}

/// What an owner changes.
pub struct InstanceUpdate {
    owner: Option<String>,
    fields: Vec<(String, serde_json::Value)>,
}

impl InstanceUpdate {
    pub fn read(kind: &Kind, body: &Payload) -> Result<InstanceUpdate> {
        let owner = body.text("owner")?.map(str::to_owned);
        if let Some(owner) = &owner {
            check_length("owner", owner, 1, 255)?;
        }
        let mut fields = Vec::new();
        for (name, field) in kind.file.fields.iter().filter(|(_, field)| field.patch) {
            if let Some(value) = body.0.get(name).filter(|value| !value.is_null()) {
                check_field(name, field, value)?;
                fields.push((name.clone(), value.clone()));
            }
        }
        Ok(InstanceUpdate { owner, fields })
    }
}

pub fn read_promotion(kind: &Kind, body: &Payload) -> Result<Promotion> {
    let field = kind.promotion_field();
    let to = body.text(&field)?.or(body.text("desired_billing_model")?);
    let to = to.unwrap_or_default().to_owned();
    check_length(&field, &to, 1, 64)?;
    let text = |name: &str| Ok::<_, Error>(body.text(name)?.unwrap_or_default().to_owned());
    let marketplace = text("desired_marketplace")?;
    let billing_cloud_account_id = text("desired_billing_cloud_account_id")?;
    Ok(Promotion { to, marketplace, billing_cloud_account_id, failed: String::new() })
}
