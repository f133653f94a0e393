//! The tables and their migrations. Forward only; several replicas may
//! start at once.

use tokio_postgres::{Client, Transaction};

use super::failed;
use crate::{Error, Result};

/// Migrations; the first creates version 1.
const STEPS: &[&str] =
    &[include_str!("0001.sql"), include_str!("0002.sql"), include_str!("0003.sql")];

/// The schema version of this binary.
pub const VERSION: i64 = STEPS.len() as i64;

/// The oldest supported server, as `server_version_num`.
const SERVER_OLDEST: i32 = 150_000;

/// An arbitrary number that all replicas share.
const LOCK: i64 = 0x6d61_696e_7374_6179;

// Suppresses the notice that the table exists.
const META: &str = "SET LOCAL client_min_messages = warning;
     CREATE TABLE IF NOT EXISTS meta (
         id         integer PRIMARY KEY CHECK (id = 1),
         version    bigint  NOT NULL,
         event_seq  bigint  NOT NULL,
         audit_seq  bigint  NOT NULL,
         audit_hash text    NOT NULL
     ) WITH (fillfactor = 10);
     INSERT INTO meta VALUES (1, 0, 0, 0, repeat('0', 64)) ON CONFLICT DO NOTHING;";

/// Excludes others that create or migrate the tables.
pub async fn lock(transaction: &Transaction<'_>) -> Result<()> {
    let locked = transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await;
    locked.map(|_| ()).map_err(failed)
}

/// Creates the tables of this version in an empty database.
pub async fn create(transaction: &Transaction<'_>, version: i64) -> Result<()> {
    let steps = usize::try_from(version).ok().and_then(|version| STEPS.get(..version));
    let steps = steps.ok_or_else(|| crate::backup::newer(version, VERSION))?;
    for step in std::iter::once(&META).chain(steps) {
        transaction.batch_execute(step).await.map_err(failed)?;
    }
    Ok(())
}

pub async fn migrate(client: &mut Client) -> Result<()> {
    let server: String =
        client.query_one("SHOW server_version_num", &[]).await.map_err(failed)?.get(0);
    if server.parse::<i32>().unwrap_or(0) < SERVER_OLDEST {
        return Err(Error::Conflict(format!(
            "the PostgreSQL server has version {server}; Mainstay needs 15 or newer"
        )));
    }
    let transaction = client.transaction().await.map_err(failed)?;
    lock(&transaction).await?;
    transaction.batch_execute(META).await.map_err(failed)?;
    let found: i64 =
        transaction.query_one("SELECT version FROM meta", &[]).await.map_err(failed)?.get(0);
    if found > VERSION {
        return Err(Error::Conflict(format!(
            "the database has version {found}, this binary knows versions up to {VERSION}: use a newer binary"
        )));
    }
    for step in &STEPS[usize::try_from(found).unwrap_or(0)..] {
        transaction.batch_execute(step).await.map_err(failed)?;
    }
    if found < VERSION {
        transaction.execute("UPDATE meta SET version = $1", &[&VERSION]).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}
