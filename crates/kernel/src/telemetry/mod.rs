//! Logs, traces and metrics; secrets that cannot be printed.

mod secret;
pub use secret::Secret;

/// What is counted. Each process, and each test, has its own.
#[derive(Default)]
pub struct Metrics {}
