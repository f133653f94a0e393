//! An object of the store with its phase, spec and status decoded.

use kernel::{Error, Key, Object, Result, Timestamp};
use serde::de::DeserializeOwned;

/// An object as the index and the API hold it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TypedObject<Phase, Spec, Status> {
    pub id: String,
    pub kind: String,
    pub org: String,
    pub owner: String,
    pub name: String,
    pub phase: Phase,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub revision: i64,
    pub spec: Spec,
    pub status: Status,
}

impl<P, S: DeserializeOwned, T: DeserializeOwned> TypedObject<P, S, T> {
    pub(super) fn decode(object: &Object, phase: fn(&str) -> Option<P>) -> Result<Self> {
        let unknown = || Error::internal("an object's phase", format!("`{}`", object.phase));
        Ok(TypedObject {
            id: object.key.id().into(),
            kind: object.key.kind().into(),
            org: object.org.clone(),
            owner: object.owner.clone(),
            name: object.name.clone(),
            phase: phase(&object.phase).ok_or_else(unknown)?,
            created_at: object.created_at,
            updated_at: object.updated_at,
            revision: object.revision,
            spec: object.spec.parse()?,
            status: object.status.parse()?,
        })
    }

    pub fn key(&self) -> Key {
        Key::new(&self.kind, &self.id)
    }
}
