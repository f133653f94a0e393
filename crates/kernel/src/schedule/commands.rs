//! The commands that create and delete schedules.

use async_trait::async_trait;
use serde::Deserialize;
use utoipa::ToSchema;

use super::decide::without_admin_roles;
use super::{CatchUp, KIND, Request, create, delete};
use crate::command::{AuditFields, Command, CommandContext, Decided, Envelope, Nothing};
use crate::http::valid_name;
use crate::identity::Action;
use crate::{Error, Object, Result};

/// Creates a schedule.
pub struct Create;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// Unique in the organisation.
    name: String,
    /// Five fields (minute, hour, day, month, weekday), or @hourly, @daily, @weekly, @monthly, @yearly.
    cron: String,
    /// The name of a time zone, as in Europe/Berlin.
    #[serde(default = "utc")]
    zone: String,
    /// What happens to times that passed while no server ran.
    #[serde(default)]
    catch_up: CatchUp,
    /// The command, without an id.
    command: Envelope,
}

fn utc() -> String {
    "UTC".into()
}

#[async_trait]
impl Command for Create {
    const NAME: &'static str = "schedule.create";
    const ACTION: Action = Action::Write;
    type Body = NewSchedule;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, new: NewSchedule) -> Result<Decided<Object>> {
        let NewSchedule { name, cron, zone, catch_up, command } = new;
        valid_name("name", &name)?;
        check(cx, &command)?;
        let id = cx.app.ambient.id();
        let request = Request { id, name, cron, zone, catch_up, command };
        let (change, object) = create(request, cx.principal, cx.now)?;
        let audit = AuditFields { after: object.spec.clone(), ..AuditFields::of(&object) };
        Ok(Decided::new(201, object, audit).change(change))
    }
}

/// Refuses what could only fail later, when nobody looks.
fn check(cx: &CommandContext<'_>, command: &Envelope) -> Result<()> {
    let Envelope { id, name, version, .. } = command;
    if id.is_some() {
        return Err(Error::invalid(
            "command.id",
            "must be left out: each planned time has its own",
        ));
    }
    let found = cx
        .app
        .commands()
        .find(name)
        .ok_or_else(|| Error::invalid("command.type", format!("`{name}` is not a command")))?;
    if !found.versions().contains(version) {
        let (first, last) = found.versions().into_inner();
        let message = format!("{name} has versions {first} to {last}, not {version}");
        return Err(Error::invalid("command.version", message));
    }
    if cx.principal.agent_of.is_some() {
        return Err(Error::Forbidden("agents have no schedules".into()));
    }
    if !found.action().allows(&without_admin_roles(cx.principal)) {
        let why =
            format!("{name} is not allowed to you without admin roles, which no schedule has");
        return Err(Error::Forbidden(why));
    }
    Ok(())
}

/// Deletes a schedule.
pub struct Delete;

#[async_trait]
impl Command for Delete {
    const NAME: &'static str = "schedule.delete";
    const ACTION: Action = Action::Write;
    type Body = Nothing;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Object>> {
        let object = cx.subject()?;
        if object.key.kind() != KIND {
            return Err(Error::NotFound(object.key.to_string()));
        }
        let (change, gone) = delete(object, cx.now);
        let audit = AuditFields { before: object.spec.clone(), ..AuditFields::of(object) };
        Ok(Decided::new(200, gone, audit).change(change))
    }
}
