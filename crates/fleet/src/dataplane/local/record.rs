//! What must outlive the server: one small file per instance beside its directory, where its
//! process cannot reach it by mistake. Replaced as a whole or not at all.

use std::fs::OpenOptions;
use std::io::{Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ProcessSpec;
use crate::ports::process::Identity;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    #[serde(rename = "wanted")]
    pub spec: ProcessSpec,
    pub intent: Intent,
    /// Kept from start to start.
    pub ports: Vec<u16>,
    pub restarts: u32,
    /// The last start, as long as something of it may run.
    pub attempt: Option<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    Run,
    Suspend,
    Remove,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Written before the process starts: whatever carries it is ours, also if we died right then.
    pub nonce: String,
    pub process: Option<Identity>,
    /// Where its output begins.
    pub output_from: u64,
    pub ready: bool,
}

impl Record {
    /// Of an instance that nobody has asked to run.
    pub fn new(id: &str) -> Record {
        Record {
            spec: ProcessSpec { id: id.to_owned(), ..ProcessSpec::default() },
            intent: Intent::Suspend,
            ports: Vec::new(),
            restarts: 0,
            attempt: None,
        }
    }

    /// Of an instance whose file cannot be read: nobody knows what it is, but something of it may
    /// run. The empty nonce stands for any.
    fn damaged(id: &str) -> Record {
        let attempt = Attempt { nonce: String::new(), process: None, output_from: 0, ready: false };
        Record { attempt: Some(attempt), ..Record::new(id) }
    }

    pub fn write(&self, root: &Path) -> Result<()> {
        let path = path(root, &self.spec.id);
        let next = path.with_extension("json.next");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            // The environment in it is the instance's own business.
            .mode(0o600)
            .open(&next)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_data()?;
        std::fs::rename(next, path)
    }

    pub fn delete(root: &Path, id: &str) -> Result<()> {
        match std::fs::remove_file(path(root, id)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// All that there are.
    pub fn read_all(root: &Path) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(root)? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => records.extend(read(&path)),
                // Half written when we died.
                Some("next") => std::fs::remove_file(&path)?,
                _ => {}
            }
        }
        Ok(records)
    }
}

fn read(path: &Path) -> Option<Record> {
    let id = path.file_stem()?.to_str()?;
    let read = std::fs::read(path).map_err(|error| error.to_string());
    let record = read.and_then(|bytes| {
        serde_json::from_slice::<Record>(&bytes).map_err(|error| error.to_string())
    });
    match record {
        Ok(record) if record.spec.id == id => Some(record),
        Ok(_) => Some(Record::damaged(id)),
        Err(error) => {
            tracing::error!(path = %path.display(), error, "the record of an instance is damaged");
            Some(Record::damaged(id))
        }
    }
}

fn path(root: &Path, id: &str) -> PathBuf {
    root.join(format!("{id}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_a_damaged_one_is_not_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let record = Record { ports: vec![1, 2], ..Record::new("a") };
        record.write(root.path()).unwrap();
        std::fs::write(root.path().join("b.json"), "{").unwrap();
        std::fs::write(root.path().join("c.json.next"), "{").unwrap();
        let mut all = Record::read_all(root.path()).unwrap();
        all.sort_by(|a, b| a.spec.id.cmp(&b.spec.id));
        assert_eq!(all, [record, Record::damaged("b")]);
        assert!(!root.path().join("c.json.next").exists());
        Record::delete(root.path(), "a").unwrap();
        Record::delete(root.path(), "a").unwrap();
        assert!(!root.path().join("a.json").exists());
    }
}
