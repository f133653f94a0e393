//! One file per server.

mod kafka;
mod postgres;
mod rabbitmq;

use crate::Server;

/// In the order in which they are installed: what is quick to get, first.
pub const ALL: &[&Server] = &[&postgres::SERVER, &rabbitmq::SERVER, &kafka::SERVER];
