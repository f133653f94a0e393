//! Deletes old rows.

use deadpool_postgres::Object as Pooled;
use tokio_postgres::Error;

use crate::Timestamp;
use crate::store::Purge;

pub async fn purge(client: &Pooled, purge: &Purge, limit: usize) -> Result<usize, Error> {
    let rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let all = "(SELECT event_seq FROM meta)";
    let read = format!("coalesce((SELECT min(seq) FROM cursors), {all})");
    let read = events(client, purge.events_before, &read, rows).await?;
    let unread = events(client, purge.unread_events_before, all, rows).await?;
    let commands = client
        .execute(
            "DELETE FROM commands WHERE id IN (SELECT id FROM commands WHERE at < $1 LIMIT $2)",
            &[&purge.commands_before.millis(), &rows],
        )
        .await?;
    // Locks the objects, so that no commit that read one of them is admitted meanwhile.
    let objects = client
        .execute(
            "WITH old AS (
                 SELECT key FROM objects WHERE deleted_at < $1
                     AND NOT EXISTS (SELECT 1 FROM edges WHERE dependency = objects.key)
                     AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.key = objects.key)
                 ORDER BY key LIMIT $2 FOR UPDATE SKIP LOCKED),
             edge AS (DELETE FROM edges WHERE dependent IN (SELECT key FROM old)),
             blob AS (DELETE FROM blobs WHERE key IN (SELECT key FROM old))
             DELETE FROM objects WHERE key IN (SELECT key FROM old)",
            &[&purge.deleted_before.millis(), &rows],
        )
        .await?;
    let archived = client
        .execute(
            "DELETE FROM audit WHERE seq <= (SELECT archived_seq FROM meta)
                 AND seq < (SELECT min(seq) FROM audit) + $1",
            &[&rows],
        )
        .await?;
    Ok((read + unread + commands + objects + archived) as usize)
}

/// Deletes the events before `before`, of the first `limit` up to the number `last`. Keeps the newest
/// event, so that the log never looks empty to a reader that is up to date. Events before an old
/// one are old too, whatever the clock said: there are no gaps.
async fn events(client: &Pooled, before: Timestamp, last: &str, limit: i64) -> Result<u64, Error> {
    let sql = format!(
        "DELETE FROM events WHERE seq <= (
             SELECT max(seq) FROM (SELECT seq, at FROM events ORDER BY seq LIMIT $2) AS first WHERE at < $1)
             AND seq < (SELECT max(seq) FROM events) AND seq <= {last}"
    );
    client.execute(&sql, &[&before.millis(), &limit]).await
}
