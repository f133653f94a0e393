//! Pure decisions: what is known of a stream, and the time, become commands and a status.

pub mod build;
mod changed;
pub mod command;
mod first;
mod recover;
mod rest;
mod say;
mod stream;

pub use command::{Command, Decision};
pub use rest::others_turn;
pub use stream::decide;
