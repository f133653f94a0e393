//! Observes what an object depends on and executes one step at a time. The driver does the rest.

pub mod account;
pub mod autoscale;
pub mod cluster;
pub mod instance;
pub mod recheck;
