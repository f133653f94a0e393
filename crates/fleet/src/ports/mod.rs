//! Adapters of the fleet's external systems.

pub mod ams;
pub mod dns;
mod http;
pub mod kubernetes;
pub mod process;
pub mod prometheus;
pub mod sso;
pub mod terraform;
