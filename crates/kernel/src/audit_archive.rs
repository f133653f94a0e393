//! Archives of the audit log: entries in a file, so that the store need not keep them.
//!
//! The first line says which entries follow, and the hashes between which they fit; then one entry per
//! line. A file gets its name only when all of it is on the disk and was read back, so a crash leaves
//! either no archive or a whole one.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::log::{AuditCheck, AuditEntry, AuditPosition, LogHeads};
use crate::{Error, Result, Timestamp};

const FORMAT: u32 = 1;

/// The first line of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    format: u32,
    /// The fingerprint of the installation's key.
    pub installation: String,
    pub made_at: Timestamp,
    pub first: i64,
    pub last: i64,
    /// Of the entry before the first one.
    pub hash_before: String,
    /// Of the last entry.
    pub hash_after: String,
}

impl Header {
    /// Of the entries after `before`, up to `after`.
    pub fn new(
        installation: String,
        made_at: Timestamp,
        before: AuditPosition,
        after: AuditPosition,
    ) -> Header {
        Header {
            format: FORMAT,
            installation,
            made_at,
            first: before.seq + 1,
            last: after.seq,
            hash_before: before.hash,
            hash_after: after.hash,
        }
    }

    /// The entry before the first one.
    pub fn before(&self) -> AuditPosition {
        AuditPosition { seq: self.first - 1, hash: self.hash_before.clone() }
    }

    /// The last entry.
    pub fn after(&self) -> AuditPosition {
        AuditPosition { seq: self.last, hash: self.hash_after.clone() }
    }
}

/// Writes an archive.
pub struct ArchiveWriter {
    path: PathBuf,
    /// What is written until it is whole.
    part: PathBuf,
    file: BufWriter<File>,
}

impl ArchiveWriter {
    /// Replaces what a crash may have left of an earlier attempt, but never an archive.
    pub fn create(path: &Path, header: &Header) -> Result<ArchiveWriter> {
        let part = remove_part(path)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        let file = BufWriter::new(file.map_err(|e| failed(&part, "be created", e))?);
        let mut writer = ArchiveWriter { path: path.to_owned(), part, file };
        writer.line(header)?;
        Ok(writer)
    }

    pub fn add(&mut self, entries: &[AuditEntry]) -> Result<()> {
        entries.iter().try_for_each(|entry| self.line(entry))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(value).expect("our own types serialise");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| failed(&self.part, "be written", e))
    }

    /// Syncs the file, reads it back, and gives it its name. A file that has the name stays.
    pub fn finish(self) -> Result<Header> {
        let ArchiveWriter { path, part, file } = self;
        let file = file.into_inner().map_err(|e| failed(&part, "be written", e.into_error()))?;
        file.sync_all().map_err(|e| failed(&part, "be synced", e))?;
        let header = read(&part, |_| {})?;
        // Unlike a rename, this fails if there is such a file.
        std::fs::hard_link(&part, &path).map_err(|e| failed(&path, "be created", e))?;
        remove_part(&path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or_else(|| Path::new("."));
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|e| failed(dir, "be synced", e))?;
        Ok(header)
    }
}

/// Removes what a crash may have left, and returns its name. It may be a second name of a whole
/// archive, so it is never written to.
pub fn remove_part(path: &Path) -> Result<PathBuf> {
    let part = PathBuf::from(format!("{}.mainstay-part", path.display()));
    match std::fs::remove_file(&part) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(&part, "be removed", e)),
        _ => Ok(part),
    }
}

/// Reads an archive and verifies all of it: its entries are those that the header says.
pub fn read(path: &Path, mut each: impl FnMut(&AuditEntry)) -> Result<Header> {
    let damaged =
        |why: String| Error::internal(format!("{} is not a whole archive", path.display()), why);
    let file = File::open(path).map_err(|e| failed(path, "be read", e))?;
    let mut lines = BufReader::new(file).lines();
    let mut next = || lines.next().transpose().map_err(|e| failed(path, "be read", e));
    let first = next()?.unwrap_or_default();
    let header: Header = serde_json::from_str(&first)
        .map_err(|e| damaged(format!("its first line is not that of an archive: {e}")))?;
    if header.format != FORMAT {
        return Err(damaged(format!("it has format {}, known is {FORMAT}", header.format)));
    }
    let mut check = AuditCheck::after(&header.before());
    while let Some(line) = next()? {
        let seq = check.head().audit_seq + 1;
        let entry: AuditEntry = serde_json::from_str(&line)
            .map_err(|e| damaged(format!("the line of entry {seq} cannot be read: {e}")))?;
        check.next(&entry).map_err(|fault| damaged(fault.to_string()))?;
        each(&entry);
    }
    let end = LogHeads::starting_after(&header.after());
    check.end(&end).map_err(|fault| damaged(fault.to_string()))?;
    Ok(header)
}

fn failed(path: &Path, what: &str, error: std::io::Error) -> Error {
    let text = format!("{} cannot {what}", path.display());
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        Error::Conflict(format!("{text}: there is such a file"))
    } else {
        Error::internal(text, error)
    }
}
