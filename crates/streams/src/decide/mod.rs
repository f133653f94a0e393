//! Pure decisions: from an observation and the time to actions.

pub mod action;
mod backfill;
pub mod build;
pub mod class;
mod drift;
mod initial_backfill;
mod requests;
mod retry;
mod status;
mod stream;

pub use action::{Action, Decision};
pub use requests::foreign_owner_until;
pub use stream::decide;
