//! Managed services: a REST call becomes an instance that runs on a data-plane cluster. A kind file
//! describes each service: its API, its plans and what its instances need.

pub mod api;
pub mod commands;
pub mod config;
pub mod dataplane;
pub mod decide;
pub mod domain;
mod health;
pub mod metrics;
pub mod model;
pub mod ports;
pub mod store;
pub mod work;

pub use config::Config;
pub use domain::{Fleet, FleetDomain, Ports};
