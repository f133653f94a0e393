//! The streams operator: stream definitions become Kubernetes Jobs and are kept running.

pub mod client;
pub mod cluster;
pub mod crd;
pub mod decide;
pub mod explain;
pub mod index;
pub mod model;
pub mod schedule;
