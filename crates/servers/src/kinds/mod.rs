//! One file per server.

mod consul;
mod kubernetes;
mod postgres;
mod vault;

use crate::Server;

/// In the order in which they are installed: what is quick to get, first.
pub const ALL: &[&Server] =
    &[&postgres::SERVER, &kubernetes::SERVER, &consul::SERVER, &vault::SERVER];
