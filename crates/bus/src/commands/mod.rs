//! The commands about sinks: webhooks are created and deleted, every sink is resumed and replayed.

mod control;
mod webhook;

pub use control::{Replay, ReplayFrom, Resume, ResumeHow};
pub use webhook::{Create, Delete, NewWebhook, secret_purpose};

use kernel::command::{AuditFields, CommandContext, Decided};
use kernel::identity::Action;
use kernel::typed::Draft;
use kernel::{Change, Error, Object, Result};

use crate::model::{KIND, Sink, Spec};

/// The sink that a command is about, if the sender may change it. Those of the configuration belong to
/// the operators.
fn subject(cx: &CommandContext<'_>) -> Result<(Object, Sink)> {
    let object = cx.subject()?;
    if object.key.kind() != KIND {
        return Err(Error::NotFound(object.key.to_string()));
    }
    if object.org.is_empty() && !Action::AdminWrite.allows(cx.principal) {
        return Err(Error::Forbidden("only admins change a sink of the configuration".into()));
    }
    Ok((object.clone(), Sink::from_object(object)?))
}

/// Writes another spec.
fn respec(
    cx: &CommandContext<'_>,
    object: &Object,
    spec: &Spec,
    event: &'static str,
) -> Decided<Object> {
    let write = Draft::<Spec>::of(object).spec(spec).respec(event, cx.now);
    let after = write.object.clone();
    let audit = AuditFields {
        before: object.spec.clone(),
        after: after.spec.clone(),
        ..AuditFields::of(object)
    };
    Decided::new(202, after, audit).change(Change::from(write))
}
