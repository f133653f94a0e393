//! A Lease, as leader election uses it.

use jiff::Timestamp;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// The resource version; none before it is created.
    pub version: Option<String>,
    pub holder: String,
    pub duration_s: i32,
    pub acquired: Timestamp,
    pub renewed: Timestamp,
    pub transitions: i32,
}
