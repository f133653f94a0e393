//! The systems that this crate talks to.

pub mod api_server;
pub mod kubernetes;
