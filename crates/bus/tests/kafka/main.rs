//! Kafka as a sink and as a source of commands, with the real broker. An independent client counts.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod bare;
mod counting;
mod faults;
mod inward;
mod inward_faults;
mod out;
mod refusals;
mod security;
