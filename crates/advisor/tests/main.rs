//! The advisor's tests: the formulas, a Prometheus real and played, jobs on every store, the API, and
//! what people are shown.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod api;
mod experiments;
mod jobs;
mod maths;
mod prometheus;
mod published;
mod shown;
mod sources;
mod support;
