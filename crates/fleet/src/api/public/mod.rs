//! The public API of a kind.

pub mod accounts;
pub mod catalogue;
pub mod clusters;
pub mod errors;
pub mod instances;
pub mod list;
pub mod metrics;
pub mod watch;
