//! The fleet's REST API as clients see it: every route, every kind of caller, on every store.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod accounts;
mod accounts_outside;
mod admin;
mod agent;
mod ams;
mod callers;
mod clusters;
mod companions;
mod conformance;
mod contract;
mod dashboard;
mod differences;
mod files;
mod flow;
mod golden;
mod matrix;
mod metrics;
mod openapi;
mod presented;
mod prometheus;
mod recorded;
mod shape;
mod sign_in;
mod stage;
mod stream;
mod watch;
