//! What users and charts use, against a real API server.

#![expect(clippy::unwrap_used, reason = "a test")]

mod crds;
mod rights;
mod stage;
