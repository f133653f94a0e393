//! Fault scenarios: concurrent requests at every limit, hostile agents, unreachable systems, vanished
//! clusters, changed catalogues. Afterwards everything must be consistent.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

#[path = "../api/agent.rs"]
#[expect(dead_code, reason = "the tests of the API use the rest")]
mod agent;
#[path = "../api/callers.rs"]
mod callers;
mod catalogue;
#[path = "../api/files.rs"]
mod files;
mod hostile_agent;
mod ledger;
mod many;
mod outage;
mod outside;
mod race;
#[path = "../api/stage.rs"]
#[expect(dead_code, reason = "the tests of the API use the rest")]
mod stage;
mod vanish;
