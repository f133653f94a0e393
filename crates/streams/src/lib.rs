//! The streams operator: stream definitions become Kubernetes Jobs and are kept running.

pub mod cluster;
pub mod config;
pub mod decide;
pub mod health;
pub mod index;
pub mod lease;
pub mod metrics;
pub mod model;
pub mod operator;
pub mod ports;
pub mod work;
