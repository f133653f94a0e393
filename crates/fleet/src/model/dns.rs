//! DNS records of instances.

use serde::{Deserialize, Serialize};

/// A CNAME. Its TTL is configured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub target: String,
}
