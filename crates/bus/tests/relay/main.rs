//! The pump of one sink on every store, with an outlet that does what a test says.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod fault;
mod stage;
mod steer;
mod takeover;
