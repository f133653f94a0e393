//! What follows from what is wanted and seen. Pure: no clocks, no randomness, no I/O.

pub mod account;
pub mod cluster;
pub mod instance;
pub mod lifecycle;
pub mod place;
pub mod report;
