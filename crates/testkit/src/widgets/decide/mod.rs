//! Pure decisions: about requests (`admission`) and about attempts (`reconcile`).

mod admission;
mod reconcile;
#[cfg(test)]
mod tests;

use kernel::change::{AuditDraft, Release};
use kernel::{Json, Object};

pub use admission::{create, respec};
pub use reconcile::{Observed, Step, decide};

use super::model::{Spec, name_counter, quota_counter};

/// What a widget gives back when it is deleted.
fn releases(object: &Object) -> Vec<Release> {
    let release = |counter| Release { counter, holder: object.key.to_string() };
    vec![release(quota_counter(&object.org)), release(name_counter(&object.org, &object.name))]
}

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
