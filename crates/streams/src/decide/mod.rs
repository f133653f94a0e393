//! Pure decisions: what is known of a stream, and the time, become commands and a status.

pub mod build;
pub mod command;
