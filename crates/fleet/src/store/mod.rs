//! What the fleet reads: the index of all objects, the catalogue's files, agents' liveness; and how
//! its objects are constructed.

pub mod access;
pub mod agent_liveness;
pub mod catalogue_files;
pub mod clusters;
pub mod index;
pub mod rechecks;
