//! Pure decisions: about requests (`admission`) and about attempts (`reconcile`).

mod admission;
mod reconcile;
#[cfg(test)]
mod tests;

use kernel::change::AuditDraft;
use kernel::{Json, Object};

pub use admission::{create, respec};
pub use reconcile::{Observed, Step, decide};

use super::model::Spec;

fn audit(actor: &str, action: &str, object: &Object, before: Option<&Spec>) -> AuditDraft {
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
