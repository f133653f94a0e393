//! Environments: a versioned template becomes a graph of resources, which are created, watched,
//! repaired, put to sleep and destroyed in the order of their dependencies.
//!
//! Start with [`model::template`], what people write, and [`decide::resource`], the rule by which
//! one resource decides from its own state and that of its neighbours. There is no scheduler.

pub mod decide;
pub mod model;
