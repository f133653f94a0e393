//! The stream verbs on a real API server.

#![expect(clippy::unwrap_used, reason = "a test")]

mod operator;
mod stage;
mod verbs;
