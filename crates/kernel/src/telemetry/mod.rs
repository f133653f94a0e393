//! Logs, traces and metrics: what a running process tells about itself.

pub mod build;
mod logs;
mod metrics;
mod otlp;
mod trace;

pub use logs::{Config, Format, Guard, init};
pub use metrics::{Breaker, Metrics};
pub use trace::{Trace, current_traceparent, with_trace};
