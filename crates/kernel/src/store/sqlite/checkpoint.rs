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
const ENOUGH: u32 = if cfg!(test) { 40 } else { 4000 };
/// What may be left for the writer.
const REST: u32 = if cfg!(test) { 10 } else { 256 };
/// The writer fills the log faster than it is emptied: it helps, and everybody waits.
const TOO_MANY: u32 = 8 * ENOUGH;
/// Each has less to do than the one before.
const PASSES: usize = 4;

thread_local! {
    /// Pages in the log after the last commit of this thread.
    static PAGES: Cell<u32> = const { Cell::new(0) };
}

/// On the writer's side.
pub struct Checkpoints {
    ask: Option<SyncSender<()>>,
    /// It was asked and has not answered.
    asked: bool,
    answered: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub fn start(path: &Path, writer: &Connection) -> Result<Checkpoints> {
        let connection = Connection::open(path).and_then(|connection| {
            super::configure(&connection)?;
            Ok(connection)
        });
        let connection = connection.map_err(|e| super::opening(path, e))?;
        writer.wal_hook(Some(|_, pages| {
            PAGES.set(u32::try_from(pages).unwrap_or_default());
            Ok(())
        }));
        let (ask, asked) = sync_channel(1);
        let answered = Arc::new(AtomicBool::new(false));
        let answer = answered.clone();
        let thread = std::thread::Builder::new()
            .name("store-checkpoints".into())
            .spawn(move || run(&connection, &asked, &answer))
            .map_err(|e| Error::internal("starting the store's checkpoints", e))?;
        Ok(Checkpoints { ask: Some(ask), asked: false, answered, thread: Some(thread) })
    }

    /// After a commit of the writer, in its thread.
    pub fn after_commit(&mut self, writer: &Connection) {
        let pages = PAGES.get();
        if self.asked {
            self.asked = !self.answered.swap(false, Ordering::AcqRel);
            if !self.asked {
                passed(writer);
            }
        } else if pages >= TOO_MANY {
            passed(writer);
        } else if pages >= ENOUGH
            && let Some(ask) = &self.ask
        {
            self.asked = ask.try_send(()).is_ok();
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, asked: &Receiver<()>, answered: &AtomicBool) {
    while asked.recv().is_ok() {
        let mut home = 0;
        for _ in 0..PASSES {
            let Some(log) = passed(connection) else { break };
            if log.saturating_sub(home) <= REST {
                break;
            }
            home = log;
        }
        answered.store(true, Ordering::Release);
    }
}

/// Brings home what is there now; how many pages the log has.
fn passed(connection: &Connection) -> Option<u32> {
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
    fn write(connection: &Connection, checkpoints: &mut Checkpoints, rows: usize) -> (u32, u32) {
        let (mut anew, mut most, mut before) = (0, 0, 0);
        for _ in 0..rows {
            connection.execute("INSERT INTO t VALUES (randomblob(6000))", []).unwrap();
            let pages = PAGES.get();
            anew += u32::from(pages < before);
            most = most.max(pages);
            before = pages;
            checkpoints.after_commit(connection);
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
        let mut checkpoints = Checkpoints::start(&path, &connection).unwrap();
        let (anew, most) = write(&connection, &mut checkpoints, 1000);
        assert!(anew >= 2, "{anew}");
        assert!(most <= TOO_MANY + ENOUGH, "{most}");

        // Who reads for long keeps the log, and nobody else waits for that.
        let reader = open(&path);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let (_, most) = write(&connection, &mut checkpoints, 1000);
        assert!(most > TOO_MANY, "{most}");
        reader.execute_batch("COMMIT").unwrap();
        let (anew, _) = write(&connection, &mut checkpoints, 100);
        assert!(anew >= 1, "{anew}");

        drop(connection);
        drop(checkpoints);
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let rows = open(&path).query_row("SELECT count(*) FROM t", [], count).unwrap();
        assert_eq!(rows, 2100);
    }
}
