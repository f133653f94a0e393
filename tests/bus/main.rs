//! The bus end to end: the binary, real brokers, and bad days. Consumers count every sequence number.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod commands;
mod commands_kafka;
mod readers;
mod relay;
mod verbs;
mod webhooks;
