//! What must outlive the server: one small file per instance next to its directory, out of reach of
//! its process.

use std::io::Result;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ProcessSpec;
use crate::ports::process::Identity;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    #[serde(rename = "wanted")]
    pub spec: ProcessSpec,
    pub intent: Intent,
    /// Kept across restarts.
    pub ports: Vec<u16>,
    pub restarts: u32,
    /// The last start, as long as one of its processes may run.
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
    /// Written before the process starts: a process with it is ours, even if we died right then.
    pub nonce: String,
    pub process: Option<Identity>,
    /// The offset of its output.
    pub output_from: u64,
    pub ready: bool,
}

impl Record {
    /// The record of a new instance.
    pub fn new(id: &str) -> Record {
        Record {
            spec: ProcessSpec { id: id.to_owned(), ..ProcessSpec::default() },
            intent: Intent::Suspend,
            ports: Vec::new(),
            restarts: 0,
            attempt: None,
        }
    }

    /// The record of an instance whose file cannot be read: a process of it may run. The empty nonce
    /// stands for any.
    fn damaged(id: &str) -> Record {
        let attempt = Attempt { nonce: String::new(), process: None, output_from: 0, ready: false };
        Record { attempt: Some(attempt), ..Record::new(id) }
    }

    pub fn write(&self, root: &Path) -> Result<()> {
        // The environment in it may have secrets.
        kernel::files::replace(&path(root, &self.spec.id), &serde_json::to_vec_pretty(self)?, 0o600)
    }

    pub fn delete(root: &Path, id: &str) -> Result<()> {
        kernel::files::remove(&path(root, id))
    }

    /// Reads all records.
    pub fn read_all(root: &Path) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(root)? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => records.extend(read(&path)),
                // Left by a crash.
                Some(kernel::files::TEMPORARY) => std::fs::remove_file(&path)?,
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
            tracing::error!(path = %path.display(), error, "the record of an instance cannot be read");
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
    fn records_are_read_back_and_a_damaged_one_still_counts() {
        let root = tempfile::tempdir().unwrap();
        let record = Record { ports: vec![1, 2], ..Record::new("a") };
        record.write(root.path()).unwrap();
        std::fs::write(root.path().join("b.json"), "{").unwrap();
        std::fs::write(root.path().join("c.json.1-0.tmp"), "{").unwrap();
        let mut all = Record::read_all(root.path()).unwrap();
        all.sort_by(|a, b| a.spec.id.cmp(&b.spec.id));
        assert_eq!(all, [record, Record::damaged("b")]);
        assert!(!root.path().join("c.json.1-0.tmp").exists());
        Record::delete(root.path(), "a").unwrap();
        Record::delete(root.path(), "a").unwrap();
        assert!(!root.path().join("a.json").exists());
    }
}
