//! The outlet and the inlet of RabbitMQ with the real broker, counted by an independent consumer.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod broker_faults;
mod credentials;
mod dead_letters;
mod fence;
mod inlet;
mod network_faults;
mod outlet;
mod replies;
mod support;
