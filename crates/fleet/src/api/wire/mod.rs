//! The wire format of the existing service.

pub mod rendered;
pub mod reply;
pub mod request;
