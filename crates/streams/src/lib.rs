//! The streams operator: stream definitions become Kubernetes Jobs and are kept running.

pub mod cluster;
pub mod config;
pub mod decide;
pub mod index;
pub mod lease;
pub mod model;
pub mod ports;
pub mod work;
