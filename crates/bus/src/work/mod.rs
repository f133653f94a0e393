//! What runs: the pump of each sink, and the intake of commands.

pub mod follow;
pub mod intake;
pub mod leadership;
pub mod relay;
mod send;
pub mod sinks;
pub mod source;
pub mod state;
