//! The advisor end to end: the binary, a real Prometheus, a real Kafka, and bad days. A consumer counts.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod consumer;
mod input;
mod stage;
mod topics;
mod verbs;
