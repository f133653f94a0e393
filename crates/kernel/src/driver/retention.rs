//! Purges old events, commands and deleted objects, in small batches, on one replica at a time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::store::Purge;
use crate::{Ambient, Result, Store, Timestamp};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// How long events are kept.
    pub events_days: u64,
    /// How long events are kept that a reader, such as a sink, has not read yet.
    pub unread_events_days: u64,
    /// How long a command id is remembered.
    pub commands_days: u64,
    /// How long deleted objects can still be read and found.
    pub deleted_days: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { events_days: 30, unread_events_days: 90, commands_days: 7, deleted_days: 90 }
    }
}

const EVERY: Duration = Duration::from_secs(600);
/// Rows per transaction: few enough not to delay other commits.
const ROWS_AT_ONCE: usize = 1000;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Runs until `stop`.
pub async fn run_retention(
    store: &dyn Store,
    ambient: &Ambient,
    name: &str,
    config: &Retention,
    stop: CancellationToken,
) {
    loop {
        if let Err(error) = round(store, ambient, name, config, &stop).await {
            tracing::warn!(%error, "purging old events failed");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn round(
    store: &dyn Store,
    ambient: &Ambient,
    name: &str,
    config: &Retention,
    stop: &CancellationToken,
) -> Result<()> {
    let now = ambient.now();
    let ago = |days: u64| {
        let days = i64::try_from(days).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_sub(days.saturating_mul(DAY_MS)))
    };
    if store.lease("retention", name, EVERY).await?.is_none() {
        return Ok(());
    }
    let purge = Purge {
        events_before: ago(config.events_days),
        unread_events_before: ago(config.unread_events_days.max(config.events_days)),
        commands_before: ago(config.commands_days),
        deleted_before: ago(config.deleted_days),
    };
    while !stop.is_cancelled() && store.purge(&purge, ROWS_AT_ONCE).await? >= ROWS_AT_ONCE {}
    let oldest = store.first_event().await?.unwrap_or(0);
    for cursor in store.cursors().await?.iter().filter(|cursor| cursor.seq + 1 < oldest) {
        tracing::warn!(
            reader = cursor.name,
            lost = oldest - 1 - cursor.seq,
            "purged events that a reader had not read: it was away longer than retention.unread_events_days"
        );
    }
    Ok(())
}
