//! The operator against a real API server with simulated nodes.
#![expect(clippy::unwrap_used, reason = "a test")]

mod beta;
mod classes;
mod counting;
mod days;
mod failures;
mod leaders;
mod stage;
mod start;
mod storm;
mod takeover;
