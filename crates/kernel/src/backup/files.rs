//! The files of a backup: for their owner alone, synced, and compared with their digests.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{FileEntry, damaged};
use crate::{Error, Result};

pub fn failed(path: &Path, what: &str, error: io::Error) -> Error {
    Error::Transient(format!("{} cannot {what}: {error}", path.display()))
}

pub fn make_dir(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| failed(path, "be made", e))
}

/// Creates the directory, or takes one that is empty.
pub fn make_empty(path: &Path) -> Result<()> {
    make_dir(path)?;
    let mut entries = fs::read_dir(path).map_err(|e| failed(path, "be read", e))?;
    if entries.next().is_some() {
        let why = format!("{} is not empty; name a new directory", path.display());
        return Err(Error::invalid("DIR", why));
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(path, mode).map_err(|e| failed(path, "be made private", e))
}

/// A new file that only its owner can read.
pub fn create(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|e| failed(path, "be created", e))
}

pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let mut file = create(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.map_err(|e| failed(path, "be written", e))
}

pub fn sync_dir(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(|e| failed(path, "be synced", e))
}

/// All files below `dir`, with their digests.
pub fn entries(dir: &Path) -> Result<Vec<FileEntry>> {
    let mut found = Vec::new();
    for part in [super::STORE_DIR, super::KEYS_DIR] {
        let at = dir.join(part);
        sync_dir(&at)?;
        for entry in fs::read_dir(&at).map_err(|e| failed(&at, "be read", e))? {
            let entry = entry.map_err(|e| failed(&at, "be read", e))?;
            let path = format!("{part}/{}", entry.file_name().to_string_lossy());
            found.push(digest(dir, path)?);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn digest(dir: &Path, path: String) -> Result<FileEntry> {
    let at = dir.join(&path);
    let cannot = |e| failed(&at, "be read", e);
    let (mut file, mut hash) = (File::open(&at).map_err(cannot)?, Sha256::new());
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    loop {
        let read = file.read(&mut buffer).map_err(cannot)?;
        if read == 0 {
            return Ok(FileEntry { path, bytes, sha256: format!("{:x}", hash.finalize()) });
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Compares all files with their digests.
pub fn verify(dir: &Path, files: &[FileEntry]) -> Result<()> {
    for expected in files {
        if !expected.path.split('/').all(is_file_name) {
            return Err(damaged(format!("{:?} is not a path of a backup", expected.path)));
        }
        let found = digest(dir, expected.path.clone())?;
        if found != *expected {
            let (path, bytes) = (&expected.path, expected.bytes);
            return Err(damaged(format!(
                "{path} was changed: {} bytes, SHA-256 {}; {bytes} bytes, SHA-256 {} expected",
                found.bytes, found.sha256, expected.sha256
            )));
        }
    }
    Ok(())
}

/// Whether it is a plain name, which leads nowhere else.
pub fn is_file_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}
