//! Prometheus and what speaks its language: the client, the queries, and the reading of the answers.

pub mod attribution;
mod auth;
pub mod client;
mod detection;
pub mod discover;
pub mod failure;
pub mod gate;
pub mod pace;
pub mod profile;
pub mod promql;
pub mod queries;
pub mod scan;
pub mod sources;
mod template;

pub use client::{Prometheus, When};
pub use failure::{Problem, QueryError};
pub use gate::Gate;
