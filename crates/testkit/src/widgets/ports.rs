//! The outside system: the workshop where widgets are built. One file per widget in a directory, or
//! the simulator's.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::PathBuf;

use async_trait::async_trait;
use kernel::{Error, Key, Result};

#[async_trait]
pub trait Workshop: Send + Sync + 'static {
    /// The generation that is built, if any.
    async fn inspect(&self, key: &Key) -> Result<Option<i64>>;
    /// Returns whether it stands; if not, the workshop is at it. Idempotent: the same generation
    /// again changes nothing. Refuses a fence that is older than the newest one.
    async fn build(&self, order: &Order) -> Result<bool>;
    async fn demolish(&self, key: &Key, fence: i64) -> Result<()>;
    /// Called while an attempt holds its slot for a long build.
    fn at_work(&self, _order: &Order) {}
}

/// An order to build a widget.
pub struct Order {
    pub key: Key,
    pub generation: i64,
    pub size: u32,
    pub polls: u32,
    pub fence: i64,
    /// The same for every attempt at the same generation.
    pub effect: String,
}

/// Keeps a file for each widget: a line for each generation that was built. The newest fence of
/// each is in `.fences`; building and demolishing hold its lock.
pub struct Directory(pub PathBuf);

impl Directory {
    fn file(&self, key: &Key) -> PathBuf {
        self.0.join(key.id())
    }

    /// Takes the lock, unless another process has it or the fence is outdated.
    fn enter(&self, key: &Key, fence: i64) -> Result<File> {
        let dir = self.0.join(".fences");
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = options.open(dir.join(key.id())).map_err(failed)?;
        // Its holder may be paused for long: waiting here would block this worker too.
        file.try_lock().map_err(|e| failed(e.into()))?;
        let mut seen = String::new();
        file.read_to_string(&mut seen).map_err(failed)?;
        if seen.trim().parse::<i64>().is_ok_and(|seen| seen > fence) {
            return Err(Error::Conflict(format!("{key}: fence {fence} is outdated")));
        }
        file.rewind().map_err(failed)?;
        // Fences only grow, so the new number overwrites the old one completely; in one write, so
        // that a crash leaves one or the other.
        file.write_all(format!("{fence:020}\n").as_bytes()).map_err(failed)?;
        Ok(file)
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
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn build(&self, order: &Order) -> Result<bool> {
        let Order { key, generation, fence, .. } = order;
        let _lock = self.enter(key, *fence)?;
        if self.inspect(key).await? >= Some(*generation) {
            return Ok(true);
        }
        let file = OpenOptions::new().create(true).append(true).open(self.file(key));
        // In one write, so that a crash does not leave half a line.
        let line = format!("{generation}\n");
        file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(failed)?;
        Ok(true)
    }

    async fn demolish(&self, key: &Key, fence: i64) -> Result<()> {
        let _lock = self.enter(key, fence)?;
        match std::fs::remove_file(self.file(key)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}
