//! Logs, traces and metrics, and a type for secrets that cannot be
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
