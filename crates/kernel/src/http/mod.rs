//! The REST surface: routes with their permission, limits, errors, documents.

mod routes;

pub use routes::{Routes, Rule};
