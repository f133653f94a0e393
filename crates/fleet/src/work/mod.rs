//! Observes the world around an object and carries out one step at a time. The driver does the
//! rest.

pub mod account;
pub mod cluster;
pub mod declared;
pub mod instance;
pub mod scale;
