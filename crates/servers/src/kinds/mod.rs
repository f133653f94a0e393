//! One file per server.

mod chromium;
mod consul;
mod kafka;
pub mod keycloak;
mod kubernetes;
mod postgres;
mod prometheus;
pub mod rabbitmq;
mod route53;
mod terraform;
mod vault;

use crate::Server;

/// In the order in which they are installed: what is quick to get, first.
pub const ALL: &[&Server] = &[
    &postgres::SERVER,
    &chromium::SERVER,
    &prometheus::SERVER,
    &rabbitmq::SERVER,
    &route53::SERVER,
    &kafka::SERVER,
    &keycloak::SERVER,
    &terraform::SERVER,
    &kubernetes::SERVER,
    &consul::SERVER,
    &vault::SERVER,
];
