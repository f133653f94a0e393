//! What follows from templates, desired states and observations. Pure: no clocks, no randomness, no
//! I/O.

pub mod compile;
pub mod expand;
pub mod graph;
pub mod resource;
