//! Files that are read again when their content changes, such as mounted secrets and certificates.
//!
//! The content is compared, not the time of the last write: the files are small, a rename or a
//! swapped symlink (as Kubernetes does) needs no special care, and no write is ever missed.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Result, files};

/// How soon a change is noticed.
const POLL: Duration = Duration::from_secs(1);
/// Far more than a bundle of certificates has.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a file holds, or why it cannot be read.
pub type Content = std::result::Result<Vec<u8>, String>;

type Load = dyn Fn(&[Content]) -> Result<()> + Send + Sync;

/// Reads files, and again when they change.
#[derive(Default)]
pub struct FileWatch(Mutex<Vec<Arc<Watched>>>);

struct Watched {
    /// The setting that names the files.
    key: String,
    paths: Vec<PathBuf>,
    last: Mutex<Vec<Content>>,
    load: Box<Load>,
    /// Whether nobody needs it any more.
    is_closed: Box<dyn Fn() -> bool + Send + Sync>,
}

impl FileWatch {
    /// The value that `parse` makes of the files, now and after each change. Later, a value that
    /// cannot be made is logged and the last one stays.
    pub fn add<T: Send + Sync + 'static>(
        &self,
        key: &str,
        paths: Vec<PathBuf>,
        parse: impl Fn(&[Content]) -> Result<T> + Send + Sync + 'static,
    ) -> Result<watch::Receiver<T>> {
        let contents = read(&paths);
        let (sender, receiver) = watch::channel(parse(&contents)?);
        let sender = Arc::new(sender);
        let watching = sender.clone();
        let load = move |contents: &[Content]| {
            sender.send_replace(parse(contents)?);
            Ok(())
        };
        self.0.lock().push(Arc::new(Watched {
            key: key.to_owned(),
            paths,
            last: Mutex::new(contents),
            load: Box::new(load),
            is_closed: Box::new(move || watching.is_closed()),
        }));
        Ok(receiver)
    }

    /// Looks for changes until stopped.
    pub async fn run(&self, stop: &CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(POLL)).await.is_some() {
            let all = {
                let mut all = self.0.lock();
                all.retain(|one| !(one.is_closed)());
                all.clone()
            };
            if !all.is_empty() {
                files::blocking(move || all.iter().for_each(|one| one.poll())).await;
            }
        }
    }
}

impl Watched {
    fn poll(&self) {
        let contents = read(&self.paths);
        let mut last = self.last.lock();
        if *last == contents {
            return;
        }
        // Recorded even if it is unusable, so that each broken version is logged once.
        let key = &self.key;
        match (self.load)(&contents) {
            Ok(()) => tracing::info!(key, "reloaded a changed file"),
            Err(error) => {
                tracing::error!(key, %error, "reloading a changed file failed; keeping the last value");
            }
        }
        *last = contents;
    }
}

fn read(paths: &[PathBuf]) -> Vec<Content> {
    let read = |path: &PathBuf| {
        let mut bytes = Vec::new();
        let file = File::open(path);
        let read = file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        read.map(|_| bytes).map_err(|error| error.to_string())
    };
    paths.iter().map(read).collect()
}
