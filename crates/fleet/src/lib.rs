//! Managed services: a REST call becomes an instance that runs on a data-plane cluster. What a
//! service is called, offers and needs is data: a kind file.

pub mod api;
pub mod clients;
pub mod config;
pub mod decide;
pub mod domain;
mod fleet;
mod heard;
pub mod index;
pub mod metrics;
pub mod model;
pub mod plane;
pub mod ports;
mod reload;
pub mod rules;
pub mod secrets;
pub mod view;
pub mod work;

pub use clients::agent_client;
pub use config::Config;
pub use domain::FleetDomain;
pub use fleet::{Fleet, Ports};
