//! What follows from templates, desired states and observations. Pure: no clocks, no randomness, no
//! I/O.

pub mod compile;
pub mod drift;
pub mod environment;
pub mod expand;
pub mod graph;
pub mod plan;
pub mod resource;
pub mod time;
