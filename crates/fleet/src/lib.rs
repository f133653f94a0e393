//! Managed services: a REST call becomes an instance that runs on a data-plane cluster. What a
//! service is called, offers and needs is data: a kind file.

pub mod config;
pub mod decide;
mod fleet;
pub mod index;
pub mod model;
pub mod plane;
pub mod ports;
pub mod rules;
pub mod secrets;
pub mod view;
pub mod work;

pub use config::Config;
pub use fleet::{Fleet, Ports};
