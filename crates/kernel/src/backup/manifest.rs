//! What a backup consists of.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files;
use crate::log::LogHeads;
use crate::{Error, Result, Timestamp};

/// The format of backups of this binary.
pub const FORMAT: u32 = 1;
const FILE: &str = "manifest.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    Sqlite,
    Postgresql,
}

impl std::fmt::Display for StoreKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StoreKind::Sqlite => "SQLite",
            StoreKind::Postgresql => "PostgreSQL",
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Of the binary that wrote it.
    pub version: String,
    pub made_at: Timestamp,
    pub store: StoreKind,
    /// The version of the tables.
    pub schema: i64,
    /// The ends of the logs at that moment.
    pub heads: LogHeads,
    pub tables: Vec<TableEntry>,
    /// Of PostgreSQL.
    #[serde(default)]
    pub sequences: Vec<SequenceEntry>,
    pub files: Vec<FileEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TableEntry {
    pub name: String,
    pub rows: u64,
    /// In the order of the file. Empty where the file knows.
    #[serde(default)]
    pub columns: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct SequenceEntry {
    pub name: String,
    pub last_value: i64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// From the directory of the backup.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

impl Manifest {
    pub fn write(&self, dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::internal("the manifest of the backup", e))?;
        files::write(&dir.join(FILE), &text)?;
        files::sync_dir(dir)
    }

    pub fn read(dir: &Path) -> Result<Manifest> {
        let path = dir.join(FILE);
        let text = std::fs::read(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::invalid(
                "DIR",
                format!(
                    "{} has no {FILE}: it is not a backup, or one that was interrupted",
                    dir.display()
                ),
            ),
            _ => files::failed(&path, "be read", e),
        })?;
        // The format first: a newer one may have other fields.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let wrong = |e: serde_json::Error| super::damaged(format!("{FILE}: {e}"));
        let Format { format } = serde_json::from_slice(&text).map_err(wrong)?;
        if format != FORMAT {
            return Err(Error::Conflict(format!(
                "the backup has format {format}, this binary knows {FORMAT}: use the binary that wrote it"
            )));
        }
        serde_json::from_slice(&text).map_err(wrong)
    }
}
