//! The outside system: where widgets are really built. One file each in a directory, or the
//! simulator's.

use std::io::Write;
use std::path::PathBuf;

use async_trait::async_trait;
use kernel::{Error, Key, Result};

#[async_trait]
pub trait Workshop: Send + Sync + 'static {
    /// The generation that stands there, if anything does.
    async fn inspect(&self, key: &Key) -> Result<Option<i64>>;
    /// Idempotent: the same generation again changes nothing. A fence older than one that was
    /// seen is refused.
    async fn build(&self, key: &Key, generation: i64, size: u32, fence: i64) -> Result<()>;
    async fn demolish(&self, key: &Key, fence: i64) -> Result<()>;
}

/// Keeps a file for each widget: a line for each generation that was built.
pub struct Directory(pub PathBuf);

impl Directory {
    fn file(&self, key: &Key) -> PathBuf {
        self.0.join(key.id())
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::unavailable("the workshop", error)
}

#[async_trait]
impl Workshop for Directory {
    async fn inspect(&self, key: &Key) -> Result<Option<i64>> {
        match std::fs::read_to_string(self.file(key)) {
            Ok(text) => Ok(text.lines().last().and_then(|line| line.parse().ok())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn build(&self, key: &Key, generation: i64, _size: u32, _fence: i64) -> Result<()> {
        if self.inspect(key).await? >= Some(generation) {
            return Ok(());
        }
        std::fs::create_dir_all(&self.0).map_err(failed)?;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.file(key));
        writeln!(file.map_err(failed)?, "{generation}").map_err(failed)
    }

    async fn demolish(&self, key: &Key, _fence: i64) -> Result<()> {
        match std::fs::remove_file(self.file(key)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}
