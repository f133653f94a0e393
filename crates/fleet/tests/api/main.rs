//! The fleet's REST API as clients see it: every route, every kind of caller, on every store.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod agent;
mod callers;
mod files;
mod flow;
mod stage;
