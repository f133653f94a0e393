//! Names that are registered for instances.

use serde::{Deserialize, Serialize};

/// A CNAME. How long it may be cached is the configuration's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub target: String,
}
