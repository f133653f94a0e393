//! The one way out to other systems.

/// Calls other systems: timeout, circuit breaker, retry, span, metric, redaction.
pub struct Outbound {}
