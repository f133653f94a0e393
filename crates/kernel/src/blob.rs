//! Data of an object that is too large for its spec or status, or too secret: Terraform states,
//! plans, logs.
//!
//! [`Blobs`] compresses and seals what is written and reads it back; the store keeps bytes. A blob
//! is written in a [`crate::Change`] and removed with its owner.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Ambient, Error, Key, Result, Store, Timestamp};

/// The most bytes of one part, as it is stored: a commit must stay short.
pub const PART_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The most bytes of a blob, before compression.
pub const BLOB_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A blob as a change writes it.
#[derive(Debug, Clone, PartialEq)]
pub enum BlobWrite {
    Put {
        key: Key,
        name: String,
        /// The version that was read, 0 for none; without it, whatever is there is replaced.
        expected: Option<i64>,
        data: StoredBlob,
    },
    /// `name`: only this one; without it, all of the object.
    Remove { key: Key, name: Option<String> },
}

impl BlobWrite {
    pub fn key(&self) -> &Key {
        match self {
            BlobWrite::Put { key, .. } | BlobWrite::Remove { key, .. } => key,
        }
    }

    /// The bytes that it writes.
    pub fn bytes(&self) -> usize {
        match self {
            BlobWrite::Put { data, .. } => data.data.len(),
            BlobWrite::Remove { .. } => 0,
        }
    }
}

/// A part of a blob as the store keeps it: compressed and, if `sealed`, encrypted.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBlob {
    /// SHA-256 of the stored bytes of all parts; hexadecimal.
    pub digest: String,
    /// The size of the whole blob before compression.
    pub size: i64,
    pub sealed: bool,
    /// How many parts the blob has; the name of part n > 0 ends with `#n`.
    pub parts: i32,
    pub data: Bytes,
}

/// A stored blob without its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobInfo {
    pub key: Key,
    pub name: String,
    /// Counts its writes.
    pub version: i64,
    pub digest: String,
    pub size: i64,
    pub sealed: bool,
    pub parts: i32,
    pub at: Timestamp,
}

/// Compresses and seals blobs under the installation's key, and opens them.
#[derive(Clone)]
pub struct Blobs {
    key: Arc<LessSafeKey>,
    /// What other secrets are derived from.
    root: hmac::Key,
    ambient: Ambient,
}

impl Blobs {
    /// With the key in this file, which is created on first start.
    pub fn open(file: &Path, ambient: Ambient) -> Result<Blobs> {
        let key = crate::key_file::open(file, "key_file", &ambient)?;
        let key = key.first_chunk().ok_or_else(|| Error::internal("a key file", "too short"))?;
        Ok(Blobs::new(key, ambient))
    }

    pub fn new(key: &[u8; 32], ambient: Ambient) -> Blobs {
        let root = hmac::Key::new(hmac::HMAC_SHA256, key);
        let key = UnboundKey::new(&AES_256_GCM, key).expect("AES-256 takes 32 bytes");
        Blobs { key: Arc::new(LessSafeKey::new(key)), root, ambient }
    }

    /// A secret of the installation for this purpose: derived, so it is stored nowhere.
    pub fn derive(&self, purpose: &str) -> Vec<u8> {
        hmac::sign(&self.root, purpose.as_bytes()).as_ref().to_vec()
    }

    /// Returns the writes that replace a blob; all belong into one change. `expected` as in
    /// [`BlobWrite::Put`].
    pub fn put(
        &self,
        key: &Key,
        name: &str,
        expected: Option<i64>,
        data: &[u8],
        sealed: bool,
    ) -> Result<Vec<BlobWrite>> {
        if name.contains(PART_MARK) {
            return Err(Error::invalid(format!("{key} {name}"), "must not contain #"));
        }
        if data.len() > BLOB_BYTES_MAX {
            let why = format!("has {} bytes, the limit is {BLOB_BYTES_MAX}", data.len());
            return Err(Error::invalid(format!("{key} {name}"), why));
        }
        let size = i64::try_from(data.len()).unwrap_or(i64::MAX);
        let compressed = compress(data).map_err(|e| Error::internal("compressing a blob", e))?;
        let chunks: Vec<&[u8]> = compressed.chunks(PART_BYTES_MAX - SEAL_BYTES).collect();
        let parts = i32::try_from(chunks.len()).unwrap_or(i32::MAX);
        let mut stored = Vec::with_capacity(chunks.len());
        for (n, chunk) in chunks.into_iter().enumerate() {
            let name = part_name(name, n);
            let data =
                if sealed { self.seal(key, &name, chunk)? } else { Bytes::copy_from_slice(chunk) };
            stored.push((name, data));
        }
        let digest = digest(stored.iter().map(|(_, data)| data));
        let put = |(n, (name, data)): (usize, (String, Bytes))| BlobWrite::Put {
            key: key.clone(),
            // The first part stands for the whole.
            expected: expected.filter(|_| n == 0),
            data: StoredBlob { digest: digest.clone(), size, sealed, parts, data },
            name,
        };
        Ok(stored.into_iter().enumerate().map(put).collect())
    }

    /// Reads a blob, with its version.
    pub async fn get(&self, store: &dyn Store, key: &Key, name: &str) -> Result<Option<Blob>> {
        let Some((info, first)) = store.blob(key, name).await? else { return Ok(None) };
        let mut compressed = self.unseal(&info, first)?;
        for n in 1..usize::try_from(info.parts).unwrap_or(1) {
            let name = part_name(name, n);
            let torn = || Error::Transient(format!("{key} {name} is being replaced"));
            let (part, data) = store.blob(key, &name).await?.ok_or_else(torn)?;
            if part.digest != info.digest {
                return Err(torn());
            }
            compressed.extend_from_slice(&self.unseal(&part, data)?);
        }
        let mut data = Vec::new();
        let limit = BLOB_BYTES_MAX as u64 + 1;
        DeflateDecoder::new(compressed.as_slice())
            .take(limit)
            .read_to_end(&mut data)
            .map_err(|e| Error::internal(format!("{key} {name} is damaged"), e))?;
        Ok(Some(Blob { version: info.version, data }))
    }

    /// Encrypts under a fresh nonce, which comes first. The name is authenticated, so that a part
    /// cannot take the place of another.
    fn seal(&self, key: &Key, name: &str, data: &[u8]) -> Result<Bytes> {
        let nonce = self.ambient.random_bytes::<NONCE_LEN>();
        let mut sealed = data.to_vec();
        let aad = Aad::from(format!("{key} {name}"));
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(|_| Error::internal("sealing a blob", "encryption failed"))?;
        Ok([&nonce[..], &sealed].concat().into())
    }

    fn unseal(&self, info: &BlobInfo, data: Bytes) -> Result<Vec<u8>> {
        if !info.sealed {
            return Ok(data.into());
        }
        let BlobInfo { key, name, .. } = info;
        let wrong = || {
            let why =
                "it was sealed under another key, or is damaged: restore the installation's key";
            Error::internal(format!("{key} {name} cannot be opened"), why)
        };
        let (nonce, sealed) = data.split_at_checked(NONCE_LEN).ok_or_else(wrong)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong())?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(format!("{key} {name}"));
        let length = self.key.open_in_place(nonce, aad, &mut sealed).map_err(|_| wrong())?.len();
        sealed.truncate(length);
        Ok(sealed)
    }
}

/// A blob as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub version: i64,
    pub data: Vec<u8>,
}

/// Between the name of a blob and the number of a part.
const PART_MARK: char = '#';

/// What sealing adds to a part: nonce and tag.
const SEAL_BYTES: usize = NONCE_LEN + 16;

/// The names of the parts that a blob of `parts` parts has no more, after it had `before`.
pub(crate) fn surplus(name: &str, before: i32, parts: i32) -> impl Iterator<Item = String> {
    // Only the first part stands for the whole.
    let before = if name.contains(PART_MARK) { 0 } else { before };
    (parts.max(1)..before).map(move |n| part_name(name, n.unsigned_abs() as usize))
}

fn part_name(name: &str, n: usize) -> String {
    if n == 0 { name.to_owned() } else { format!("{name}{PART_MARK}{n}") }
}

fn digest<'a>(parts: impl Iterator<Item = &'a Bytes>) -> String {
    let mut hash = Sha256::new();
    parts.for_each(|part| hash.update(part));
    format!("{:x}", hash.finalize())
}

fn compress(data: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data)?;
    encoder.finish()
}
