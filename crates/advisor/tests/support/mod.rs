//! What several tests use.

pub mod cluster;
pub mod recorded;
pub mod server;
pub mod small;
pub mod stand_in;
