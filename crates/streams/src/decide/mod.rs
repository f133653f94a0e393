//! Pure decisions: what is known of a stream, and the time, become commands and a status.

pub mod action;
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
