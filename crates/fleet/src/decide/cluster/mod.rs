//! Decisions about clusters: the life cycle, agents' reports, reconciliation and autoscaling.

pub mod lifecycle;
pub mod plan;
pub mod report;
pub mod scaling;
