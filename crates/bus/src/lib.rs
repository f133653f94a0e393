//! The bus: what happened leaves through the relay, to Kafka, RabbitMQ and webhooks; commands come in
//! from Kafka and RabbitMQ through the same registry as over REST.
//!
//! [`work::relay`] is the pump of one sink: it reads the event log from the sink's cursor, renders
//! messages and hands them to an [`ports::out::Outlet`]. [`work::intake`] carries out one command that
//! an inlet of [`ports::inward`] has received.

pub mod api;
pub mod commands;
pub mod config;
pub mod decide;
pub mod domain;
pub mod metrics;
pub mod model;
pub mod ports;
pub mod store;
pub mod work;

pub use config::Config;
pub use domain::BusDomain;
