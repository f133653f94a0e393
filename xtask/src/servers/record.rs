//! What a run has started, in one small file per server: enough to stop it from anywhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::process::Process;

#[derive(Debug, PartialEq)]
pub struct Record {
    pub server: String,
    /// Where its data is; removed when it is stopped.
    pub dir: PathBuf,
    /// None while it is being started.
    pub process: Option<Process>,
    pub env: Vec<(String, String)>,
}

const ENDING: &str = "server";

impl Record {
    pub fn new(server: &str, dir: &Path) -> Record {
        Record { server: server.into(), dir: dir.into(), process: None, env: Vec::new() }
    }

    fn path(&self, run: &Path) -> PathBuf {
        run.join(&self.server).with_extension(ENDING)
    }

    pub fn write(&self, run: &Path) -> Result<()> {
        let mut text = format!("dir {}\n", self.dir.display());
        if let Some(process) = &self.process {
            text.push_str(&format!("process {process}\n"));
        }
        for (name, value) in &self.env {
            text.push_str(&format!("env {name}={value}\n"));
        }
        // Whole or not at all: someone may read it at this moment.
        let new = self.path(run).with_extension("new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, self.path(run)).context("a record cannot be written")
    }

    pub fn all(run: &Path) -> Result<Vec<Record>> {
        let Ok(files) = std::fs::read_dir(run) else { return Ok(Vec::new()) };
        let mut records = Vec::new();
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == ENDING) {
                records.push(Record::read(&path)?);
            }
        }
        Ok(records)
    }

    fn read(path: &Path) -> Result<Record> {
        let server = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut record = Record::new(&server, Path::new(""));
        for line in std::fs::read_to_string(path)?.lines() {
            match line.split_once(' ') {
                Some(("dir", dir)) => record.dir = dir.into(),
                Some(("process", process)) => record.process = Some(process.parse()?),
                Some(("env", pair)) => {
                    let (name, value) = pair.split_once('=').context("env without a value")?;
                    record.env.push((name.into(), value.into()));
                }
                _ => {}
            }
        }
        Ok(record)
    }

    /// Removes the server's data, then what is known of it.
    pub fn remove(&self, run: &Path) -> Result<()> {
        if self.dir.exists() {
            std::fs::remove_dir_all(&self.dir)
                .with_context(|| format!("{} cannot be removed", self.dir.display()))?;
        }
        std::fs::remove_file(self.path(run)).context("a record cannot be removed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_it_was_written_and_takes_its_data_with_it() {
        let run = std::env::temp_dir().join(format!("mainstay-record-{}", std::process::id()));
        let dir = run.join("data of it");
        std::fs::create_dir_all(&dir).unwrap();
        let record = Record {
            server: "postgres".into(),
            dir: dir.clone(),
            process: Some(Process::current().unwrap()),
            env: vec![("A".into(), "b=c d".into())],
        };
        record.write(&run).unwrap();
        assert_eq!(Record::all(&run).unwrap(), [record]);
        Record::all(&run).unwrap()[0].remove(&run).unwrap();
        assert!(!dir.exists() && Record::all(&run).unwrap().is_empty());
        std::fs::remove_dir_all(&run).unwrap();
    }
}
