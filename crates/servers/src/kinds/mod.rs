//! One file per server.

mod kafka;
pub mod keycloak;
mod postgres;
mod prometheus;
mod rabbitmq;

use crate::Server;

/// In the order in which they are installed: what is quick to get, first.
pub const ALL: &[&Server] =
    &[&postgres::SERVER, &prometheus::SERVER, &rabbitmq::SERVER, &kafka::SERVER, &keycloak::SERVER];
