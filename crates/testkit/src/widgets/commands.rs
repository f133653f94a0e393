//! The commands: each reads what it needs, lets `decide` check the request, and returns the change.

use async_trait::async_trait;
use kernel::command::{AuditFields, Command, CommandContext, Decided, Nothing};
use kernel::http::valid_name;
use kernel::identity::Action;
use kernel::{Key, Labels, Object, Result};
use serde::Deserialize;
use utoipa::ToSchema;

use super::decide;
use super::model::{self, QUOTA, Request, Spec};

/// Creates a widget.
pub struct Create;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWidget {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    size: u32,
    /// Keys of other widgets, as `widget/ID`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    depends_on: Vec<Key>,
    /// How many attempts fail before one succeeds.
    #[serde(default)]
    fail_times: i32,
    /// How many attempts panic before one succeeds.
    #[serde(default)]
    panic_times: i32,
    /// Fails permanently, with this reason.
    broken: Option<String>,
    /// How long building it takes.
    #[serde(default)]
    hold_s: u32,
}

#[async_trait]
impl Command for Create {
    const NAME: &'static str = "widget.create";
    const ACTION: Action = Action::Write;
    type Body = NewWidget;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, new: NewWidget) -> Result<Decided<Object>> {
        valid_name("name", &new.name)?;
        let NewWidget { name, description, labels, size, depends_on, .. } = new;
        let NewWidget { fail_times, panic_times, broken, hold_s, .. } = new;
        let spec = Spec { size, fail_times, panic_times, broken, hold_s, ..Spec::default() };
        let (org, owner) = (cx.principal.org.clone(), cx.principal.subject.clone());
        let id = cx.app.ambient.id();
        let request = Request { id, org, owner, name, description, labels, spec, depends_on };
        let dependencies = cx.app.store.get(&request.depends_on).await?;
        let (change, object) = decide::create(request, &dependencies, QUOTA, cx.now)?;
        let audit = AuditFields { after: object.spec.clone(), ..AuditFields::of(&object) };
        Ok(Decided::new(202, object, audit).change(change))
    }
}

/// Changes a widget's size.
pub struct Resize;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WidgetChange {
    size: u32,
}

#[async_trait]
impl Command for Resize {
    const NAME: &'static str = "widget.update";
    const ACTION: Action = Action::Write;
    type Body = WidgetChange;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, body: WidgetChange) -> Result<Decided<Object>> {
        edit(cx, |before| Spec { size: body.size, ..before })
    }
}

/// Deletes a widget, once nothing depends on it any more.
pub struct Delete;

#[async_trait]
impl Command for Delete {
    const NAME: &'static str = "widget.delete";
    const ACTION: Action = Action::Write;
    type Body = Nothing;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Object>> {
        edit(cx, |before| Spec { deleting: true, ..before })
    }
}

/// Writes what `edit` makes of the spec.
fn edit(cx: &CommandContext<'_>, edit: impl Fn(Spec) -> Spec) -> Result<Decided<Object>> {
    let before = cx.subject()?;
    let spec = edit(model::spec(before)?);
    let change = decide::respec(before, &cx.principal.subject, &spec, cx.now)?;
    let after = change.write.as_ref().map_or(before, |write| &write.object).clone();
    let audit = AuditFields {
        before: before.spec.clone(),
        after: after.spec.clone(),
        ..AuditFields::of(before)
    };
    Ok(Decided::new(202, after, audit).change(change))
}
