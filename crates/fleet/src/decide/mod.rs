//! What follows from specs and observations. Pure: no clocks, no randomness, no I/O.

pub mod account;
pub mod admin_patch;
pub mod admission;
pub mod cluster;
pub mod instance;
pub mod instance_report;
pub mod placement;
pub mod promotion;
pub mod version_change;

use kernel::Object;
use kernel::change::AuditDraft;

/// What an event does to a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition<Phase> {
    To(Phase),
    /// It has the phase already, or the event is out of order.
    None,
    /// The object stays as history.
    Removed,
}

/// Whether it is only on the way to what a command asked for.
fn is_hop(what: &str) -> bool {
    !["ready", "failed", "suspended", "promoted", "not_promoted"].contains(&what)
}

/// The audit entry of a change that a worker makes.
fn audit(object: &Object, what: &str) -> AuditDraft {
    AuditDraft {
        actor: "mainstay".into(),
        action: format!("{}.{what}", object.key.kind()),
        target: object.key.to_string(),
        org: object.org.clone(),
        outcome: "done".into(),
        ..AuditDraft::default()
    }
}
