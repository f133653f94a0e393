//! The tables and their migrations. Forward only.

use rusqlite::{Connection, TransactionBehavior};

use crate::{Error, Result};

/// Migrations; the first creates version 1.
const STEPS: &[&str] =
    &[include_str!("0001.sql"), include_str!("0002.sql"), include_str!("0003.sql")];

/// The schema version of this binary.
pub const VERSION: i64 = STEPS.len() as i64;

/// Applies the missing migrations. Refuses a file that is newer than this binary.
pub fn migrate(connection: &mut Connection) -> rusqlite::Result<Result<()>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > VERSION {
        return Ok(Err(Error::Conflict(format!(
            "the database has version {found}, this binary knows versions up to {VERSION}: use a newer binary"
        ))));
    }
    let done = usize::try_from(found).unwrap_or(0);
    for step in &STEPS[done..] {
        transaction.execute_batch(step)?;
    }
    // This process has the file to itself: all claims in it are of a process that ended.
    let unclaimed = "UPDATE queue SET state = 0, attempt = attempt + 1, woken = NULL,
         reason = 'interrupted by a server restart' WHERE state = 2";
    transaction.execute(unclaimed, [])?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit().map(Ok)
}
