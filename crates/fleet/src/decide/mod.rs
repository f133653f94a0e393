//! What follows from what is wanted and seen. Pure: no clocks, no randomness, no I/O.

pub mod account;
/// What an event makes of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then<Status> {
    To(Status),
    /// It is so already, or the event is out of order: nothing happens.
    Stays,
    /// The row stays as history.
    Gone,
}

pub mod cluster;
pub mod instance;
pub mod lifecycle;
pub mod place;
pub mod report;
