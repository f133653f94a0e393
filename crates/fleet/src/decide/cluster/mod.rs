//! What becomes of a cluster: its life as a table, what its agent's reports make of it, what to do
//! about it, and when there should be one more or one less.

pub mod lifecycle;
pub mod plan;
pub mod report;
pub mod scaling;
