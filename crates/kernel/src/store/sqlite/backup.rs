//! The embedded store in a backup: one file, copied by SQLite while the server runs.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::{failed, load};
use crate::backup::{
    AuditVerifier, Manifest, SQLITE_FILE, StoreBackup, StoreKind, TableEntry, damaged,
};
use crate::installation::KEYS_OBJECT;
use crate::log::AuditFilter;
use crate::store::sql;
use crate::{Error, Result, Timestamp};

/// Entries in memory at once.
const AUDIT_PAGE: usize = 1000;

/// Copies the store as it is at one moment. Only reads it.
pub fn write(file: &Path, to: &Path) -> Result<StoreBackup> {
    if !file.try_exists().unwrap_or(false) {
        let why = format!("there is no store at {}; name the server's --data-dir", file.display());
        return Err(Error::invalid("data_dir", why));
    }
    crate::backup::make_dir(to)?;
    let copy = to.join(SQLITE_FILE);
    // Created before, so that nobody else can read it at any moment.
    crate::backup::create_file(&copy)?;
    let source = open_read_only(file)?;
    source.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).map_err(failed)?;
    let synced = std::fs::File::open(&copy).and_then(|file| file.sync_all());
    synced.map_err(|e| crate::backup::file_failed(&copy, "be synced", e))?;

    let copied = open_read_only(&copy)?;
    let fingerprints = copied
        .query_row("SELECT spec FROM objects WHERE key = ?1", [KEYS_OBJECT], |row| row.get(0))
        .optional()
        .map_err(failed)?;
    Ok(StoreBackup {
        kind: StoreKind::Sqlite,
        schema: copied.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?,
        heads: load::head(&copied).map_err(failed)?,
        tables: tables(&copied).map_err(failed)?,
        sequences: Vec::new(),
        fingerprints,
    })
}

fn open_read_only(file: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(failed)?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(failed)?;
    Ok(connection)
}

/// All tables with their rows, from the catalogue: a table of a later version is among them.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<TableEntry>> {
    let mut names = connection.prepare(
        "SELECT name FROM pragma_table_list
         WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
    )?;
    let names = names.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let count = |name: String| {
        let sql = format!("SELECT count(*) FROM \"{name}\"");
        let rows: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
        Ok(TableEntry { name, rows: rows.unsigned_abs(), columns: Vec::new() })
    };
    names.into_iter().map(count).collect()
}

/// Checks the file's structure, its rows and its audit log.
pub fn verify(file: &Path, manifest: &Manifest) -> Result<()> {
    let connection = open_read_only(file)?;
    let sound: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .map_err(|e| damaged(e.to_string()))?;
    if sound != "ok" {
        return Err(damaged(format!("SQLite says: {sound}")));
    }
    let found = tables(&connection).map_err(failed)?;
    let counts = |tables: &[TableEntry]| -> Vec<(String, u64)> {
        tables.iter().map(|table| (table.name.clone(), table.rows)).collect()
    };
    if counts(&found) != counts(&manifest.tables) {
        return Err(damaged("its tables do not have the rows that the manifest says"));
    }
    let (mut audit, mut filter) = (AuditVerifier::new(&manifest.heads), AuditFilter::default());
    loop {
        let select = sql::audit("audit", &filter, AUDIT_PAGE);
        let page = super::read::select(&connection, select, |row| sql::audit_entry(row));
        let page = page.map_err(failed)?;
        let Some(last) = page.last() else { break };
        filter.after = last.seq;
        page.iter().try_for_each(|entry| audit.next(entry))?;
    }
    audit.end(&manifest.heads)
}

/// Puts the copy in its place, without the claims of the server that it was taken from.
pub fn restore(source: &Path, target: &Path, now: Timestamp) -> Result<()> {
    let cannot = |e: std::io::Error| crate::backup::file_failed(target, "be written", e);
    std::fs::copy(source, target).map_err(cannot)?;
    let connection = Connection::open(target).map_err(failed)?;
    let release = format!(
        "UPDATE queue SET state = 0, woken = NULL, reason = 'interrupted by a restore' WHERE state = 2;
         UPDATE leases SET until = 0;
         UPDATE meta SET fence = max(fence, {});",
        crate::backup::fence_after_restore(now)
    );
    connection.execute_batch(&release).map_err(failed)?;
    drop(connection);
    std::fs::File::open(target).and_then(|file| file.sync_all()).map_err(cannot)
}
