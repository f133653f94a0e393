//! Logs, traces and metrics; secrets that cannot be printed.

/// What is counted. Each process, and each test, has its own.
#[derive(Default)]
pub struct Metrics {}
