//! The verbs for streams as a person uses them, on a real API server.

#![expect(clippy::unwrap_used, reason = "a test")]

mod operator;
mod stage;
mod verbs;
