//! A trusted issuer: verifies that a token is its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::claims::ClaimMapper;
use super::config::Algorithm;
use super::keys::{Key, Keys};
use super::token::{Unverified, refused};
use crate::Result;

pub struct Issuer {
    pub url: String,
    pub audience: Option<Vec<String>>,
    pub algorithms: Vec<Algorithm>,
    pub keys: Keys,
    pub reader: ClaimMapper,
    /// The number of verified signatures.
    pub verifications: AtomicU64,
}

impl Issuer {
    /// The key that the token was signed with. Its claims can be believed from then on.
    pub async fn verify(&self, token: &Unverified<'_>) -> Result<Arc<Key>> {
        let said = token.header.alg.as_str();
        let allowed = self.algorithms.iter().find(|one| format!("{one:?}") == said);
        let algorithm = *allowed.ok_or_else(|| {
            let names: Vec<String> = self.algorithms.iter().map(|one| format!("{one:?}")).collect();
            let said: String = said.chars().take(20).collect();
            refused(format!(
                "tokens signed with {said:?} are not accepted, only {}",
                names.join(", ")
            ))
        })?;
        let key = self.keys.find(token.header.kid.as_deref(), algorithm).await?;
        self.verifications.fetch_add(1, Ordering::Relaxed);
        if !key.verifies(algorithm, token.message, token.signature) {
            return Err(refused(
                "the token's signature is wrong: it was changed, or not made by its issuer",
            ));
        }
        Ok(key)
    }
}
