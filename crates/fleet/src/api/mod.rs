//! The REST API of every kind (public, for agents, for admins), and the fleet's own.

pub mod access;
pub mod admin;
pub mod agent;
pub mod client_source;
pub mod compat;
pub mod fleet;
pub mod kind_api;
pub mod openapi;
pub mod present;
pub mod public;
pub mod routes;
pub mod wire;
