//! Brings the write-ahead log home while the writer goes on. Within a commit, as SQLite does it by
//! itself, everybody would wait while megabytes are written and synced.
//!
//! The log begins anew only when nothing of it is left to bring home, which nobody but the writer
//! can see to: what came meanwhile is little, and that it does itself.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::{Error, Result};

/// Pages in the log that are worth it.
const CHECKPOINT_PAGES: u32 = if cfg!(test) { 40 } else { 4000 };
/// What may be left for the writer.
const TAIL_PAGES_MAX: u32 = if cfg!(test) { 10 } else { 256 };
/// The writer fills the log faster than it is emptied: it helps, and everybody waits.
const STALL_PAGES: u32 = 8 * CHECKPOINT_PAGES;
/// Each has less to do than the one before.
const PASSES: usize = 4;

thread_local! {
    /// Pages in the log after the last commit of this thread.
    static PAGES: Cell<u32> = const { Cell::new(0) };
}

/// On the writer's side.
pub struct Checkpointer {
    request: Option<SyncSender<()>>,
    /// It was requested and has not finished.
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

    /// After a commit of the writer, in its thread.
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
        let mut home = 0;
        for _ in 0..PASSES {
            let Some(log) = checkpoint_passive(connection) else { break };
            if log.saturating_sub(home) <= TAIL_PAGES_MAX {
                break;
            }
            home = log;
        }
        finished.store(true, Ordering::Release);
    }
}

/// Brings home what is there now; how many pages the log has.
fn checkpoint_passive(connection: &Connection) -> Option<u32> {
    let pass = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1));
    match pass {
        Ok(pages) => Some(pages),
        Err(error) => {
            tracing::warn!(%error, "the store's log could not be brought home");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes so many rows, one in each commit; how often the log began anew, and its most pages.
    fn write(connection: &Connection, checkpointer: &mut Checkpointer, rows: usize) -> (u32, u32) {
        let (mut anew, mut most, mut before) = (0, 0, 0);
        for _ in 0..rows {
            connection.execute("INSERT INTO t VALUES (randomblob(6000))", []).unwrap();
            let pages = PAGES.get();
            anew += u32::from(pages < before);
            most = most.max(pages);
            before = pages;
            checkpointer.after_commit(connection);
        }
        (anew, most)
    }

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        super::super::configure(&connection).unwrap();
        connection
    }

    #[test]
    fn the_log_begins_anew_again_and_again_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let connection = open(&path);
        connection.execute("CREATE TABLE t (x BLOB)", []).unwrap();
        let mut checkpointer = Checkpointer::start(&path, &connection).unwrap();
        let (anew, most) = write(&connection, &mut checkpointer, 1000);
        assert!(anew >= 2, "{anew}");
        assert!(most <= STALL_PAGES + CHECKPOINT_PAGES, "{most}");

        // Who reads for long keeps the log, and nobody else waits for that.
        let reader = open(&path);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let (_, most) = write(&connection, &mut checkpointer, 1000);
        assert!(most > STALL_PAGES, "{most}");
        reader.execute_batch("COMMIT").unwrap();
        let (anew, _) = write(&connection, &mut checkpointer, 100);
        assert!(anew >= 1, "{anew}");

        drop(connection);
        drop(checkpointer);
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let rows = open(&path).query_row("SELECT count(*) FROM t", [], count).unwrap();
        assert_eq!(rows, 2100);
    }
}
