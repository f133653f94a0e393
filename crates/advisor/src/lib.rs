//! The advisor: right-sizes CPU, memory and GPU of containers from what Prometheus measured.

pub mod api;
pub mod commands;
pub mod config;
pub mod decide;
pub mod domain;
pub mod metrics;
pub mod model;
pub mod ports;
pub mod report;
pub mod store;
pub mod work;

pub use config::Config;
pub use domain::AdvisorDomain;
