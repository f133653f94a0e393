//! The streams operator: stream definitions become Kubernetes Jobs and are kept running.

pub mod cluster;
pub mod decide;
pub mod index;
pub mod model;
pub mod ports;
