//! Responses as they are on the wire.

pub mod rendered;
pub mod reply;
pub mod request;
