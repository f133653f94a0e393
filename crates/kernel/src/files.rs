//! Files: written so that a reader finds them whole or not at all, also after a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The extension of a file that is still being written. One that stays behind was left by a crash.
pub const TEMPORARY: &str = "tmp";

/// Replaces the file at `path`, or creates it.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = write_temporary(path, bytes, mode)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    sync_parent(path)
}

/// Creates the file at `path`. Returns whether it did: an existing file stays as it is.
pub fn create(path: &Path, bytes: &[u8], mode: u32) -> io::Result<bool> {
    let temporary = write_temporary(path, bytes, mode)?;
    // Unlike a rename, a link does not replace a file that another process created meanwhile.
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the file at `path`, if there is one.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Runs file operations on the threads that may block: a slow disk must not hold up the others.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down: nothing is polled again.
            Err(_) => std::future::pending().await,
        },
    }
}

fn write_temporary(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{number}.{TEMPORARY}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()
    })();
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(temporary)
}

/// Makes the new name durable, not only the content.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_reader_never_finds_half_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("address");
        let texts = ["http://127.0.0.1:1\n", "http://127.0.0.1:2\n"];
        replace(&path, texts[0].as_bytes(), 0o644).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0;
                while !done.load(Ordering::Relaxed) {
                    let text = fs::read_to_string(&path).unwrap();
                    assert!(texts.contains(&text.as_str()), "read {text:?} after {reads} reads");
                    reads += 1;
                }
            });
            for i in 0..300 {
                replace(&path, texts[i % 2].as_bytes(), 0o644).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file stayed");
    }

    #[test]
    fn of_many_who_create_a_file_one_does_and_the_others_find_it_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let created: usize = std::thread::scope(|scope| {
            let create = |i: usize| {
                let path = &path;
                scope.spawn(move || {
                    let created = create(path, "k".repeat(100 + i).as_bytes(), 0o600).unwrap();
                    assert!(fs::read(path).unwrap().len() >= 100);
                    usize::from(created)
                })
            };
            let threads: Vec<_> = (0..8).map(create).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(created, 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file stayed");
    }
}
