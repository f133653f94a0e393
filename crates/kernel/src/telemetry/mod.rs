//! Logs, traces and metrics: what a running process tells about itself. Secrets that cannot be
//! printed.

pub mod build;
mod logs;
mod metrics;
mod otlp;
mod secret;
mod trace;

pub use logs::{Config, Format, Guard, init};
pub use metrics::{InUse, Metrics, MetricsObserver};
pub use secret::Secret;
pub use trace::{Trace, current_traceparent, with_trace};
