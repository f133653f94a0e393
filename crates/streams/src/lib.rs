//! The streams operator: runs stream definitions as Kubernetes Jobs and keeps them running.

pub mod config;
pub mod controller;
pub mod decide;
pub mod explain;
pub mod index;
pub mod kubectl;
pub mod metrics;
pub mod model;
pub mod ports;
pub mod reporting;
pub mod work;
