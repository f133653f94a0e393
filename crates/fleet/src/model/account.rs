//! A service account: a client of the SSO system for an organisation's programs.

use kernel::typed::{Kind, NoStatus, parse_phase};
use kernel::{Key, Object, Result, Timestamp};
use serde::{Deserialize, Serialize};

pub const KIND: &str = "service-account";

/// Precedes the account's id in its client id.
pub const CLIENT_PREFIX: &str = "srvc-acct-";

kernel::labels! {
    pub enum Phase {
        /// Its client is being created, and nobody has its secret yet.
        Creating = "creating",
        Ready = "ready",
        Deleting = "deleting",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Spec {
    pub client_id: String,
    pub account: String,
    /// How often its secret was rotated; the secret is derived from it.
    pub rotation: i64,
    /// Its deletion was requested.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
}

impl Kind for Spec {
    type Phase = Phase;
    type Status = NoStatus;
}

#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub id: String,
    pub org: String,
    pub owner: String,
    pub name: String,
    pub description: String,
    pub phase: Phase,
    pub created_at: Timestamp,
    pub revision: i64,
    pub spec: Spec,
}

impl Account {
    pub fn from_object(object: &Object) -> Result<Account> {
        Ok(Account {
            id: object.key.id().into(),
            org: object.org.clone(),
            owner: object.owner.clone(),
            name: object.name.clone(),
            description: object.description.clone(),
            phase: parse_phase(object)?,
            created_at: object.created_at,
            revision: object.revision,
            spec: object.spec.parse()?,
        })
    }
}

pub fn key(id: &str) -> Key {
    Key::new(KIND, id)
}

pub fn counter(org: &str) -> String {
    format!("fleet/service-accounts/{org}")
}

/// The client id of an account.
pub fn client_id(id: &str) -> String {
    format!("{CLIENT_PREFIX}{id}")
}
