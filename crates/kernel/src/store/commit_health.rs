//! Remembers whether commits fail, for readiness. A full disk may have room for one more page and
//! none for a commit, so a small write proves nothing once a commit has failed.

use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use super::{Store, commit};
use crate::blob::{BlobWrite, StoredBlob};
use crate::{Ambient, Change, Class, Key, Result};

/// Larger than most batches. Stored once: the next one replaces it.
const PROBE_BYTES: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub struct CommitHealth {
    /// Whether a commit failed since it was last proved that they succeed.
    failed: AtomicBool,
}

impl CommitHealth {
    /// Notes how a commit ended, and returns it. One that succeeds may have been a small one, and what
    /// cannot be written because of its content says nothing about the store.
    pub fn note<T>(&self, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| error.class() == Class::Transient) {
            self.failed.store(true, Ordering::Release);
        }
        result
    }

    /// Commits something large if a commit failed, so that readiness comes back without traffic.
    pub async fn prove(&self, store: &dyn Store) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let ambient = Ambient::system();
        let data = incompressible(&ambient.id());
        let data = StoredBlob {
            digest: format!("{:x}", Sha256::digest(&data)),
            size: PROBE_BYTES as i64,
            sealed: false,
            parts: 1,
            data: data.into(),
        };
        let (key, name) = (Key::new("installation", "readiness"), "probe".to_owned());
        let probe = BlobWrite::Put { key, name, expected: None, data };
        let change = Change { blobs: vec![probe], ..Change::default() };
        commit(store, change, ambient.now()).await?;
        self.failed.store(false, Ordering::Release);
        Ok(())
    }
}

/// Bytes that no database makes smaller.
fn incompressible(seed: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PROBE_BYTES + 32);
    let mut hash = Sha256::digest(seed);
    while bytes.len() < PROBE_BYTES {
        bytes.extend_from_slice(&hash);
        hash = Sha256::digest(hash);
    }
    bytes.truncate(PROBE_BYTES);
    bytes
}
