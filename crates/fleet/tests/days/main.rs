//! Bad days: everyone at once at the edge of a limit, agents that lie, systems that are away,
//! clusters that vanish, rules that change. Afterwards everything is as it should be.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

#[path = "../api/agent.rs"]
#[expect(dead_code, reason = "the tests of the API use the rest")]
mod agent;
#[path = "../api/callers.rs"]
mod callers;
#[path = "../api/files.rs"]
mod files;
mod ledger;
mod race;
#[path = "../api/stage.rs"]
#[expect(dead_code, reason = "the tests of the API use the rest")]
mod stage;
