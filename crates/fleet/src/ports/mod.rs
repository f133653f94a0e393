//! The outside systems of the fleet, one file each.

pub mod ams;
pub mod dns;
pub mod kubernetes;
pub mod process;
pub mod prometheus;
pub mod sso;
pub mod terraform;
