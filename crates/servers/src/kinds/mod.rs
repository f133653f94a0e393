//! One file per server.

mod chromium;
mod consul;
mod kubernetes;
mod postgres;
mod route53;
mod terraform;
mod vault;

use crate::Server;

/// In the order in which they are installed: what is quick to get, first.
pub const ALL: &[&Server] = &[
    &postgres::SERVER,
    &chromium::SERVER,
    &route53::SERVER,
    &terraform::SERVER,
    &kubernetes::SERVER,
    &consul::SERVER,
    &vault::SERVER,
];
