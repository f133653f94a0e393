//! Who is calling, and what they may do.

mod action;
mod principal;

pub use action::Action;
pub use principal::{Principal, Visibility};

use crate::{Error, Result};

/// Turns bearer tokens into principals.
pub struct Identity {}

impl Identity {
    /// Who this bearer token speaks for.
    pub async fn authenticate(&self, _bearer: &str) -> Result<std::sync::Arc<Principal>> {
        Err(Error::Unauthenticated("no issuer is configured".into()))
    }
}
