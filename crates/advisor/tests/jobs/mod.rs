//! Bulk jobs on every store, with a small cluster in the place of a Prometheus.

mod course;
mod seeds;
mod steering;
mod trouble;
