//! What follows from specs and observations. Pure: no clocks, no randomness, no I/O.

pub mod account;
pub mod admin_patch;
pub mod admission;
pub mod catalogue_change;
pub mod cluster;
pub mod instance;
pub mod instance_report;
pub mod placement;
pub mod promotion;
pub mod version_change;

/// What an event does to a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition<Phase> {
    To(Phase),
    /// It has the phase already, or the event is out of order.
    None,
    /// The object stays as history.
    Removed,
}
