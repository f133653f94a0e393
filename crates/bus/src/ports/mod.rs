//! The outside systems: brokers and webhooks.

pub mod inward;
mod kafka;
pub mod out;
mod rabbitmq;
