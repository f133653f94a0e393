//! Checkpoints the write-ahead log (WAL) in a background thread. SQLite's automatic checkpoint runs
//! inside a commit, where everybody waits while megabytes are written and synced.
//!
//! The WAL restarts only after a checkpoint that leaves nothing behind, and only the writer can
//! exclude new pages: it checkpoints the small rest itself.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::{Error, Result};

/// WAL pages that trigger a checkpoint.
const CHECKPOINT_PAGES: u32 = if cfg!(test) { 40 } else { 4000 };
/// Pages that may be left for the writer.
const TAIL_PAGES_MAX: u32 = if cfg!(test) { 10 } else { 256 };
/// The WAL grows faster than the background checkpointer drains it; the writer checkpoints inline,
/// which stalls commits.
const STALL_PAGES: u32 = 8 * CHECKPOINT_PAGES;
/// Passes per request; each has fewer pages than the one before.
const PASSES: usize = 4;

thread_local! {
    /// WAL pages after the last commit of this thread.
    static PAGES: Cell<u32> = const { Cell::new(0) };
}

/// The writer's handle of the background thread.
pub struct Checkpointer {
    request: Option<SyncSender<()>>,
    /// A checkpoint was requested and has not finished.
    requested: bool,
    finished: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub fn start(path: &Path, writer: &Connection) -> Result<Checkpointer> {
        let connection = Connection::open(path).and_then(|connection| {
            super::configure(&connection)?;
            Ok(connection)
        });
        let connection = connection.map_err(|e| super::opening(path, e))?;
        writer.wal_hook(Some(|_, pages| {
            PAGES.set(u32::try_from(pages).unwrap_or_default());
            Ok(())
        }));
        let (request, requested) = sync_channel(1);
        let finished = Arc::new(AtomicBool::new(false));
        let answer = finished.clone();
        let thread = std::thread::Builder::new()
            .name("store-checkpointer".into())
            .spawn(move || run(&connection, &requested, &answer))
            .map_err(|e| Error::internal("starting the store's checkpointer", e))?;
        Ok(Checkpointer {
            request: Some(request),
            requested: false,
            finished,
            thread: Some(thread),
        })
    }

    /// Called by the writer after each commit.
    pub fn after_commit(&mut self, writer: &Connection) {
        let pages = PAGES.get();
        if self.requested {
            self.requested = !self.finished.swap(false, Ordering::AcqRel);
            if !self.requested {
                checkpoint_passive(writer);
            }
        } else if pages >= STALL_PAGES {
            checkpoint_passive(writer);
        } else if pages >= CHECKPOINT_PAGES
            && let Some(request) = &self.request
        {
            self.requested = request.try_send(()).is_ok();
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.request = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, requested: &Receiver<()>, finished: &AtomicBool) {
    while requested.recv().is_ok() {
        let mut done = 0;
        for _ in 0..PASSES {
            let Some(log) = checkpoint_passive(connection) else { break };
            if log.saturating_sub(done) <= TAIL_PAGES_MAX {
                break;
            }
            done = log;
        }
        finished.store(true, Ordering::Release);
    }
}

/// Checkpoints without blocking anyone. Returns the number of WAL pages.
fn checkpoint_passive(connection: &Connection) -> Option<u32> {
    let pass = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1));
    match pass {
        Ok(pages) => Some(pages),
        Err(error) => {
            tracing::warn!(%error, "WAL checkpoint failed");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `rows` rows, one per commit. Returns how often the WAL restarted, and its most pages.
    fn write(connection: &Connection, checkpointer: &mut Checkpointer, rows: usize) -> (u32, u32) {
        let (mut restarts, mut most, mut before) = (0, 0, 0);
        for _ in 0..rows {
            connection.execute("INSERT INTO t VALUES (randomblob(6000))", []).unwrap();
            let pages = PAGES.get();
            restarts += u32::from(pages < before);
            most = most.max(pages);
            before = pages;
            checkpointer.after_commit(connection);
        }
        (restarts, most)
    }

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        super::super::configure(&connection).unwrap();
        connection
    }

    #[test]
    fn the_wal_restarts_repeatedly_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let connection = open(&path);
        connection.execute("CREATE TABLE t (x BLOB)", []).unwrap();
        let mut checkpointer = Checkpointer::start(&path, &connection).unwrap();
        let (restarts, most) = write(&connection, &mut checkpointer, 1000);
        assert!(restarts >= 2, "{restarts}");
        assert!(most <= STALL_PAGES + CHECKPOINT_PAGES, "{most}");

        // A long read keeps the WAL from restarting, and nobody waits for it.
        let reader = open(&path);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let (_, most) = write(&connection, &mut checkpointer, 1000);
        assert!(most > STALL_PAGES, "{most}");
        reader.execute_batch("COMMIT").unwrap();
        let (restarts, _) = write(&connection, &mut checkpointer, 100);
        assert!(restarts >= 1, "{restarts}");

        drop(connection);
        drop(checkpointer);
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let rows = open(&path).query_row("SELECT count(*) FROM t", [], count).unwrap();
        assert_eq!(rows, 2100);
    }
}
