//! The output of an instance's process: one file of limited size, whose last lines are part of error
//! messages.

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Beyond this the file is rotated.
const LIMIT_BYTES: u64 = 10 << 20;

/// More than a message needs.
const TAIL_BYTES: u64 = 64 << 10;

pub struct Output {
    path: PathBuf,
    limit_bytes: u64,
}

impl Output {
    pub fn in_dir(dir: &Path) -> Output {
        Output { path: dir.join("log"), limit_bytes: LIMIT_BYTES }
    }

    /// Opens the file for a new process. Returns the offset at which its output begins.
    pub fn open(&self) -> Result<(File, u64)> {
        self.trim()?;
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        let from = file.metadata()?.len();
        Ok((file, from))
    }

    /// Rotates the file at its limit, also while a process writes: it appends, so it continues at the
    /// new end.
    pub fn trim(&self) -> Result<()> {
        let length = std::fs::metadata(&self.path).map(|file| file.len()).unwrap_or_default();
        if length > self.limit_bytes {
            std::fs::copy(&self.path, self.path.with_extension("1"))?;
            OpenOptions::new().write(true).open(&self.path)?.set_len(0)?;
        }
        Ok(())
    }

    /// Whether a line since byte `from` contains the text.
    pub fn contains(&self, text: &str, from: u64) -> bool {
        let Ok(mut file) = File::open(&self.path) else { return false };
        let trimmed = file.metadata().is_ok_and(|file| file.len() < from);
        let mut bytes = Vec::new();
        let start = SeekFrom::Start(if trimmed { 0 } else { from });
        let read = file.seek(start).and_then(|_| file.take(LIMIT_BYTES).read_to_end(&mut bytes));
        read.is_ok() && String::from_utf8_lossy(&bytes).lines().any(|line| line.contains(text))
    }

    /// The last lines since byte `from`.
    pub fn tail(&self, lines: usize, from: u64) -> Vec<String> {
        let read = || {
            let mut file = File::open(&self.path)?;
            let length = file.metadata()?.len();
            let from = if length < from { 0 } else { from };
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL_BYTES))))?;
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Result::Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_tail_is_of_the_current_process_and_the_file_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let output = Output { limit_bytes: 40, ..Output::in_dir(dir.path()) };
        let (mut file, from) = output.open().unwrap();
        writeln!(file, "first\nsecond").unwrap();
        assert_eq!(output.tail(1, from), ["second"]);
        assert!(output.contains("eco", from) && !output.contains("third", from));
        let (mut file, from) = output.open().unwrap();
        assert!(!output.contains("second", from));
        assert!(output.tail(5, from).is_empty());
        writeln!(file, "third, with more than there is room for").unwrap();
        output.trim().unwrap();
        assert_eq!(std::fs::metadata(&output.path).unwrap().len(), 0);
        writeln!(file, "fourth").unwrap();
        assert_eq!(output.tail(5, from), ["fourth"]);
        let before = std::fs::read_to_string(dir.path().join("log.1")).unwrap();
        assert!(before.starts_with("first\nsecond\nthird"), "{before}");
    }
}
