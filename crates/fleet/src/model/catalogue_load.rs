//! Which replica has loaded which version of the catalogue's files. One object for all of them: its
//! generation counts the requests to load the files again.

use std::collections::BTreeMap;

use kernel::typed::Kind;
use kernel::{Key, Object, Result, Timestamp};
use serde::{Deserialize, Serialize};

use super::cluster::num_is_zero;

pub const KIND: &str = "catalogue";

pub fn key() -> Key {
    Key::new(KIND, "fleet")
}

kernel::labels! { pub enum Phase { Loaded = "loaded" } }

/// Each request is a new generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    #[serde(skip_serializing_if = "num_is_zero")]
    pub requests: i64,
}

impl Kind for Spec {
    type Phase = Phase;
    type Status = Status;
    const RECONCILED: bool = false;
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// By the name of the replica.
    pub replicas: BTreeMap<String, Load>,
}

/// The last load of a replica.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The newest request that it has followed.
    pub generation: i64,
    pub at: Timestamp,
    /// Why it kept the catalogue that it had; empty if it loaded the files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl Status {
    pub fn of(object: &Object) -> Result<Status> {
        object.status.parse()
    }

    /// Drops replicas that did not follow the last request: they are gone.
    pub fn drop_gone(&mut self, last: i64) {
        self.replicas.retain(|_, load| load.generation >= last);
    }
}
