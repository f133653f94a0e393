//! Managed services: a REST call becomes an instance that runs on a data-plane cluster. What a
//! service is called, offers and needs is data: a kind file.

pub mod api;
pub mod commands;
pub mod config;
pub mod dataplane;
pub mod decide;
pub mod domain;
pub mod metrics;
pub mod model;
pub mod ports;
pub mod store;
pub mod work;

pub use config::Config;
pub use domain::{Fleet, FleetDomain, Ports};
