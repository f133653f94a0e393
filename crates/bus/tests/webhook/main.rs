//! Webhooks in a server of the test's own, with receivers that listen on loopback.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod addresses;
mod delivery;
mod failures;
mod organisations;
mod parking;
mod receiver;
mod server;
