//! What is installed, pinned. A new version is a new directory in the cache: change it here, and
//! the next `cargo xtask servers install` builds it beside the old one.

/// The oldest that the store supports; a newer one that is there is used.
pub const POSTGRES_MIN: u32 = 15;

/// Route 53's API. From PyPI, with Flask, which serves it.
pub const MOTO: &str = "5.2.5";
pub const FLASK: &str = "3.1.3";
pub const FLASK_CORS: &str = "6.0.5";
