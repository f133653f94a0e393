//! What the fleet reads: the index of all objects, the catalogue's files, when agents were last
//! seen; and how its objects are constructed.

pub mod agent_liveness;
pub mod catalogue_files;
pub mod clusters;
pub mod index;
