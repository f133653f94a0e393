//! The outside systems that the advisor reads, and those that it reports to.

pub mod kubernetes;
pub mod prometheus;
pub mod webhook;
