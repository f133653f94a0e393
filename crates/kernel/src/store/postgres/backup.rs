//! The shared store in a backup: one file per table, in the text format of COPY, which any later
//! PostgreSQL reads.

use std::path::Path;

use axum::body::Bytes;
use futures::{SinkExt as _, TryStreamExt as _, pin_mut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_postgres::{Client, Transaction};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{connect, failed, schema};
use crate::backup::{
    Manifest, SequenceEntry, StoreBackup, StoreKind, TableEntry, copy_file_name, create_file,
    damaged, fence_after_restore, file_failed, is_file_name, make_dir,
};
use crate::installation::KEYS_OBJECT;
use crate::store::sql;
use crate::{Error, Result, Timestamp};

/// Bytes per message of COPY.
const CHUNK_BYTES: usize = 256 * 1024;

/// A connection of its own, which ends with the guard.
async fn connect(url: &str) -> Result<(Client, String, DropGuard)> {
    let (config, place) = connect::parse(url)?;
    let (client, connection) = config.connect(connect::tls()?).await.map_err(failed)?;
    let stop = CancellationToken::new();
    tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
    Ok((client, place, stop.drop_guard()))
}

/// Copies all tables as they are at one moment. Only reads them.
pub async fn write(url: &str, to: &Path) -> Result<StoreBackup> {
    make_dir(to)?;
    let (mut client, _, _guard) = connect(url).await?;
    let snapshot = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await
        .map_err(failed)?;
    let row = snapshot.query_one(sql::LOG_HEADS, &[]).await.map_err(failed)?;
    let heads = sql::log_heads(&row).map_err(failed)?;
    let row = snapshot.query_one("SELECT version FROM meta", &[]).await.map_err(failed)?;
    let keys = "SELECT spec::text FROM objects WHERE key = $1";
    let keys = snapshot.query_opt(keys, &[&KEYS_OBJECT]).await.map_err(failed)?;
    let mut tables = tables(&snapshot).await?;
    for table in &mut tables {
        table.rows = copy_out(&snapshot, table, &to.join(copy_file_name(&table.name))).await?;
    }
    Ok(StoreBackup {
        kind: StoreKind::Postgresql,
        schema: row.get(0),
        heads,
        tables,
        // After the tables: a sequence is not part of the snapshot, and may be ahead of it.
        sequences: sequences(&snapshot).await?,
        fingerprints: keys.map(|row| row.get(0)),
    })
}

/// All tables, from the catalogue: a table of a later version is among them.
async fn tables(snapshot: &Transaction<'_>) -> Result<Vec<TableEntry>> {
    let sql =
        "SELECT t.table_name::text, array_agg(c.column_name::text ORDER BY c.ordinal_position)
         FROM information_schema.tables t
         JOIN information_schema.columns c USING (table_schema, table_name)
         WHERE t.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
           AND c.is_generated = 'NEVER'
         GROUP BY 1 ORDER BY 1";
    let rows = snapshot.query(sql, &[]).await.map_err(failed)?;
    rows.iter()
        .map(|row| {
            let name: String = row.get(0);
            if !is_file_name(&name) {
                return Err(Error::Conflict(format!(
                    "the table {name:?} is not one of Mainstay's"
                )));
            }
            Ok(TableEntry { name, rows: 0, columns: row.get(1) })
        })
        .collect()
}

async fn sequences(snapshot: &Transaction<'_>) -> Result<Vec<SequenceEntry>> {
    let sql = "SELECT sequencename::text, last_value FROM pg_sequences
         WHERE schemaname = current_schema() AND last_value IS NOT NULL ORDER BY 1";
    let rows = snapshot.query(sql, &[]).await.map_err(failed)?;
    let entry =
        |row: &tokio_postgres::Row| SequenceEntry { name: row.get(0), last_value: row.get(1) };
    Ok(rows.iter().map(entry).collect())
}

fn columns(table: &TableEntry) -> String {
    let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
    table.columns.iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// Returns the number of rows.
async fn copy_out(snapshot: &Transaction<'_>, table: &TableEntry, to: &Path) -> Result<u64> {
    let cannot = |e: std::io::Error| file_failed(to, "be written", e);
    let mut file = tokio::fs::File::from_std(create_file(to)?);
    // The logs are verified in their order, which is not that of the file.
    let is_log = table.columns.iter().any(|column| column == "seq");
    let order = if is_log { "ORDER BY seq" } else { "" };
    let (name, columns) = (&table.name, columns(table));
    let sql = format!("COPY (SELECT {columns} FROM \"{name}\" {order}) TO STDOUT");
    let rows = snapshot.copy_out(&sql).await.map_err(failed)?;
    pin_mut!(rows);
    let mut count = 0;
    while let Some(data) = rows.try_next().await.map_err(failed)? {
        // A line break within a value is escaped.
        count += data.iter().filter(|byte| **byte == b'\n').count() as u64;
        file.write_all(&data).await.map_err(cannot)?;
    }
    file.flush().await.map_err(cannot)?;
    file.sync_all().await.map_err(cannot)?;
    Ok(count)
}

/// Writes a backup into an empty database, in one transaction. `before_commit` is the last step that
/// may fail. Returns the tables that were left out, because they are not of Mainstay.
pub async fn restore(
    url: &str,
    from: &Path,
    manifest: &Manifest,
    now: Timestamp,
    before_commit: impl Future<Output = Result<()>>,
) -> Result<Vec<String>> {
    let (mut client, place, _guard) = connect(url).await?;
    let transaction = client.transaction().await.map_err(failed)?;
    schema::lock(&transaction).await?;
    let sql = "SELECT count(*) FROM pg_class
         WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'S')";
    let there: i64 = transaction.query_one(sql, &[]).await.map_err(failed)?.get(0);
    if there > 0 {
        return Err(Error::Conflict(format!(
            "the database {place} is not empty: restore into a new one (createdb NAME)"
        )));
    }
    schema::create(&transaction, manifest.schema).await?;
    let ours: Vec<String> = tables(&transaction).await?.into_iter().map(|t| t.name).collect();
    let (restored, skipped): (Vec<&TableEntry>, Vec<&TableEntry>) =
        manifest.tables.iter().partition(|table| ours.contains(&table.name));
    for table in restored {
        let rows = copy_in(&transaction, table, &from.join(copy_file_name(&table.name))).await?;
        if rows != table.rows {
            let (name, expected) = (&table.name, table.rows);
            return Err(damaged(format!("{name} has {rows} rows, {expected} expected")));
        }
    }
    for SequenceEntry { name, last_value } in &manifest.sequences {
        let sql = "SELECT setval(c.oid, $2) FROM pg_class c
             WHERE c.relname = $1 AND c.relnamespace = current_schema()::regnamespace";
        transaction.execute(sql, &[name, last_value]).await.map_err(failed)?;
    }
    // Without the claims of the servers that it was taken from.
    let release = format!(
        "UPDATE queue SET state = 0, woken = NULL, reason = 'interrupted by a restore' WHERE state = 2;
         UPDATE leases SET until = 0;
         SELECT setval('queue_fence', greatest(nextval('queue_fence'), {}))",
        fence_after_restore(now)
    );
    transaction.batch_execute(&release).await.map_err(failed)?;
    before_commit.await?;
    transaction.commit().await.map_err(failed)?;
    Ok(skipped.into_iter().map(|table| table.name.clone()).collect())
}

/// Returns the number of rows.
async fn copy_in(transaction: &Transaction<'_>, table: &TableEntry, from: &Path) -> Result<u64> {
    let cannot = |e: std::io::Error| file_failed(from, "be read", e);
    let name = &table.name;
    // The schema's first row of `meta`.
    let empty = format!("DELETE FROM \"{name}\"");
    transaction.batch_execute(&empty).await.map_err(failed)?;
    let sql = format!("COPY \"{name}\" ({}) FROM STDIN", columns(table));
    let sink = transaction.copy_in::<_, Bytes>(&sql).await.map_err(failed)?;
    pin_mut!(sink);
    let mut file = tokio::fs::File::open(from).await.map_err(cannot)?;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let read = (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk).await;
        if read.map_err(cannot)? == 0 {
            break;
        }
        sink.send(Bytes::from(chunk)).await.map_err(failed)?;
    }
    sink.finish().await.map_err(failed)
}
