//! Managed services: a REST call becomes an instance that runs on a data-plane cluster. What a
//! service is called, offers and needs is data: a kind file.

pub mod plane;
pub mod ports;
