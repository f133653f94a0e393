//! Restores a backup, all of it or nothing.

use std::path::{Path, PathBuf};

use super::{Installation, KEYS_DIR, Manifest, SQLITE_FILE, STORE_DIR, StoreKind, blocking, files};
use crate::installation::{check_data_dir, restore_mark};
use crate::store::{postgres, sqlite};
use crate::{Ambient, Error, Result};

/// What was restored.
pub struct Restored {
    pub manifest: Manifest,
    /// Tables of the backup that are not of Mainstay, and were left out.
    pub skipped: Vec<String>,
}

/// Restores the backup in `dir`. The target must be empty: a data directory without anything in it,
/// or a database without tables.
pub async fn restore(into: &Installation, dir: &Path, ambient: &Ambient) -> Result<Restored> {
    let from = dir.to_owned();
    let manifest = blocking(move || super::verify(&from)).await?;
    let keys = KeyCopies::plan(into, dir, &manifest)?;
    let now = ambient.now();
    let skipped = match (&into.database, manifest.store) {
        (Some(url), StoreKind::Postgresql) => {
            // Should the commit fail after it, a second try accepts key files that are the same.
            let keys = blocking(move || keys.write());
            let from = dir.join(STORE_DIR);
            postgres::backup::restore(url, &from, &manifest, now, keys).await?
        }
        (None, StoreKind::Sqlite) if manifest.schema > sqlite::VERSION => {
            return Err(newer(manifest.schema, sqlite::VERSION));
        }
        (None, StoreKind::Sqlite) => {
            let (target, source) = (into.data_dir.clone(), dir.join(STORE_DIR).join(SQLITE_FILE));
            blocking(move || restore_files(&target, &source, &keys, now)).await?;
            Vec::new()
        }
        (_, of) => {
            let how = match of {
                StoreKind::Sqlite => "leave out --database and name a --data-dir",
                StoreKind::Postgresql => "name an empty database with --database",
            };
            let why = format!("the backup is of {of}, and restores into the same: {how}");
            return Err(Error::Conflict(why));
        }
    };
    Ok(Restored { manifest, skipped })
}

/// The error for a backup of a later version.
pub(crate) fn newer(schema: i64, known: i64) -> Error {
    Error::Conflict(format!(
        "the backup has version {schema} of the tables, this binary knows versions up to {known}: use a newer binary"
    ))
}

/// A server refuses the directory until the mark is gone, which is the last step.
fn restore_files(
    target: &Path,
    source: &Path,
    keys: &KeyCopies,
    now: crate::Timestamp,
) -> Result<()> {
    check_data_dir(target)?;
    files::make_dir(target)?;
    let mut entries = std::fs::read_dir(target).map_err(|e| files::failed(target, "be read", e))?;
    if entries.next().is_some() {
        return Err(Error::Conflict(format!(
            "{} is not empty: restore into a new directory with --data-dir, or move what is there away",
            target.display()
        )));
    }
    let mark = restore_mark(target);
    files::write(&mark, b"")?;
    files::sync_dir(target)?;
    keys.write()?;
    sqlite::backup::restore(source, &target.join(SQLITE_FILE), now)?;
    files::sync_dir(target)?;
    std::fs::remove_file(&mark).map_err(|e| files::failed(&mark, "be removed", e))?;
    files::sync_dir(target)
}

/// The keys of a backup, and where they go.
struct KeyCopies(Vec<(PathBuf, Vec<u8>)>);

impl KeyCopies {
    /// Refuses to replace another key.
    fn plan(into: &Installation, dir: &Path, manifest: &Manifest) -> Result<KeyCopies> {
        let mut copies = Vec::new();
        let prefix = format!("{KEYS_DIR}/");
        for name in manifest.files.iter().filter_map(|file| file.path.strip_prefix(&prefix)) {
            let from = dir.join(KEYS_DIR).join(name);
            let content = std::fs::read(&from).map_err(|e| files::failed(&from, "be read", e))?;
            let configured = into.keys.iter().find(|key| key.name == name);
            let to = configured.map_or_else(|| into.data_dir.join(name), |key| key.path.clone());
            match std::fs::read(&to) {
                Ok(there) if there.trim_ascii() == content.trim_ascii() => continue,
                Ok(_) => {
                    return Err(Error::Conflict(format!(
                        "{} is another key than the backup's; move it away first",
                        to.display()
                    )));
                }
                Err(_) => copies.push((to, content)),
            }
        }
        Ok(KeyCopies(copies))
    }

    fn write(&self) -> Result<()> {
        for (to, content) in &self.0 {
            if let Some(parent) = to.parent() {
                files::make_dir(parent)?;
            }
            let created = crate::files::create(to, content, 0o600);
            created.map_err(|e| files::failed(to, "be written", e))?;
        }
        Ok(())
    }
}
