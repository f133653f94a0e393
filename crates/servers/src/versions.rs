//! What is installed, pinned. A new version is a new directory in the cache: change it here, and
//! the next `cargo xtask servers install` builds it beside the old one.

/// The oldest that the store supports; a newer one that is there is used.
pub const POSTGRES_MIN: u32 = 15;

/// Route 53's API. From PyPI, with Flask, which serves it.
pub const MOTO: &str = "5.2.5";
pub const FLASK: &str = "3.1.3";
pub const FLASK_CORS: &str = "6.0.5";

/// From Maven.
pub const KAFKA: &str = "4.3.1";

/// The system's own; 3.10 is the oldest that was tried.
pub const RABBITMQ: &str = "3.10 or newer";

/// The system's own; the first that takes what is long past is 2.39.
pub const PROMETHEUS: &str = "2.39 or newer";

pub const KEYCLOAK: &str = "26.7.3";
