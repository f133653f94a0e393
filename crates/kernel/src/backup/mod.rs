//! Backup and restore of an installation: its store and its keys, in one directory.
//!
//! `manifest.json` is written last, so a directory without one is not a backup. It names each file with
//! its digest, and each table with its rows. What was written is read back and verified: digests, rows,
//! the audit log's hash chain, and for SQLite the file's own integrity.

mod copy_text;
mod files;
mod manifest;
mod restore;

pub use manifest::{FileEntry, Manifest, SequenceEntry, StoreKind, TableEntry};
pub(crate) use restore::newer;
pub use restore::{Restored, restore};

use std::path::{Path, PathBuf};

use crate::installation::{Fingerprints, KeyFile};
use crate::log::{AuditCheck, AuditEntry, LogHeads};
use crate::store::{postgres, sqlite};
use crate::telemetry::build::VERSION;
use crate::{Ambient, Error, Result, Timestamp};

pub(crate) use copy_text::file_name as copy_file_name;
pub(crate) use files::{create as create_file, failed as file_failed, is_file_name, make_dir};

/// Where an installation has its state.
pub struct Installation {
    /// The URL of PostgreSQL; none for SQLite in the data directory.
    pub database: Option<String>,
    pub data_dir: PathBuf,
    pub keys: Vec<KeyFile>,
}

/// What a store wrote into a backup.
pub(crate) struct StoreBackup {
    pub kind: StoreKind,
    pub schema: i64,
    pub heads: LogHeads,
    pub tables: Vec<TableEntry>,
    pub sequences: Vec<SequenceEntry>,
    /// The spec of the object with the fingerprints of keys.
    pub fingerprints: Option<String>,
}

pub(crate) const STORE_DIR: &str = "store";
const KEYS_DIR: &str = "keys";
pub(crate) const SQLITE_FILE: &str = "mainstay.db";

/// Writes a backup into `dir`, which is created or empty. The server may run meanwhile.
pub async fn backup(of: &Installation, dir: &Path, ambient: &Ambient) -> Result<Manifest> {
    let (at, made_at) = (dir.to_owned(), ambient.now());
    blocking(move || files::make_empty(&at)).await?;
    let store_dir = dir.join(STORE_DIR);
    let store = match &of.database {
        Some(url) => postgres::backup::write(url, &store_dir).await?,
        None => {
            let file = of.data_dir.join(SQLITE_FILE);
            blocking(move || sqlite::backup::write(&file, &store_dir)).await?
        }
    };
    let (at, keys) = (dir.to_owned(), of.keys.clone());
    blocking(move || {
        copy_keys(&keys, store.fingerprints.as_deref(), &at.join(KEYS_DIR))?;
        let StoreBackup { kind, schema, heads, tables, sequences, .. } = store;
        let version = VERSION.to_owned();
        let files = files::entries(&at)?;
        let manifest = Manifest {
            format: manifest::FORMAT,
            version,
            made_at,
            store: kind,
            schema,
            heads,
            tables,
            sequences,
            files,
        };
        verify_content(&at, &manifest)?;
        manifest.write(&at)?;
        // What the disk has, not what was meant to be written.
        verify(&at)
    })
    .await
}

/// Reads a backup and verifies all of it.
pub fn verify(dir: &Path) -> Result<Manifest> {
    let manifest = Manifest::read(dir)?;
    files::verify(dir, &manifest.files)?;
    verify_content(dir, &manifest)?;
    Ok(manifest)
}

fn verify_content(dir: &Path, manifest: &Manifest) -> Result<()> {
    let store = dir.join(STORE_DIR);
    match manifest.store {
        StoreKind::Sqlite => sqlite::backup::verify(&store.join(SQLITE_FILE), manifest),
        StoreKind::Postgresql => copy_text::verify(&store, manifest),
    }
}

/// Verifies the hash chain of the audit log, entry by entry, from the last one that was archived.
pub(crate) struct AuditVerifier {
    check: AuditCheck,
    archived: i64,
}

impl AuditVerifier {
    pub(crate) fn new(heads: &LogHeads) -> AuditVerifier {
        AuditVerifier { check: AuditCheck::after(&heads.archived), archived: heads.archived.seq }
    }

    pub(crate) fn next(&mut self, entry: &AuditEntry) -> Result<()> {
        if entry.seq <= self.archived {
            return Ok(());
        }
        self.check.next(entry).map_err(|fault| damaged(format!("its audit log: {fault}")))
    }

    pub(crate) fn end(&self, heads: &LogHeads) -> Result<()> {
        self.check.end(heads).map_err(|fault| damaged(format!("its audit log: {fault}")))
    }
}

/// Fences above all that were given out since the backup, and below those of a later restore.
pub(crate) fn fence_after_restore(now: Timestamp) -> i64 {
    now.millis().saturating_mul(1 << 20)
}

/// The error for a backup that is not what it says.
pub(crate) fn damaged(why: impl Into<String>) -> Error {
    Error::internal(format!("the backup is damaged: {}", why.into()), "verification failed")
}

fn copy_keys(keys: &[KeyFile], fingerprints: Option<&str>, to: &Path) -> Result<()> {
    files::make_dir(to)?;
    let expected: Fingerprints = match fingerprints {
        Some(text) => serde_json::from_str(text)
            .map_err(|e| Error::internal("the fingerprints of keys", e))?,
        None => Fingerprints::new(),
    };
    for key in keys {
        let content = key.read()?;
        let found = content.as_deref().map(|content| key.fingerprint(content));
        if let Some(expected) = expected.get(key.name)
            && found.as_ref() != Some(expected)
        {
            return Err(Error::Conflict(format!(
                "{}: {} is missing or is not the key of this store, so a backup would not bring its \
                 tokens and secrets back; run it where the server runs, with its configuration",
                key.setting,
                key.path.display()
            )));
        }
        if let Some(content) = content {
            files::write(&to.join(key.name), &content)?;
        }
    }
    files::sync_dir(to)
}

/// Runs file and SQLite work off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::internal("the backup", e))?
}
