//! The streams operator: stream definitions become Kubernetes Jobs and are kept running.

pub mod client;
pub mod cluster;
pub mod config;
pub mod crd;
pub mod decide;
pub mod explain;
pub mod health;
pub mod index;
pub mod lease;
pub mod metrics;
pub mod model;
pub mod operator;
pub mod ports;
pub mod schedule;
pub mod work;
