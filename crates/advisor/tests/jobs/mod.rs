//! Bulk jobs on every store, with a small cluster in the place of a Prometheus.

mod course;
mod steering;
mod trouble;
