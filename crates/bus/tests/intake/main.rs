//! What becomes of a command that came in over the bus: who sends it, what is tried again, what is
//! rejected, and what its sender gets.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod consumers;
mod failures;
mod senders;
mod stage;
