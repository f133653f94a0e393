//! Reads the number of the newest event for many callers at once: one query serves all that came
//! before it began. At most one runs at a time, in its own task, so a caller that gives up leaves
//! nothing behind, and each waiter is woken once.

use std::sync::Arc;

use deadpool_postgres::{Object as Pooled, Pool};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Error as PgError;

use super::{connection, failed};
use crate::store::{NewestByKind, Wakeups};
use crate::{Error, Result};

pub type Request = oneshot::Sender<Result<Newest>>;

/// The newest event of all, and of each kind.
#[derive(Clone)]
pub struct Newest {
    pub seq: i64,
    pub kinds: Arc<NewestByKind>,
}

pub async fn run(pool: Pool, wakeups: Arc<Wakeups>, mut waiting: mpsc::Receiver<Request>) {
    let mut requests = Vec::new();
    while waiting.recv_many(&mut requests, super::WAITING_MAX).await > 0 {
        let newest = query(&pool).await;
        if let Ok(newest) = &newest {
            wakeups.notify_event(newest.seq);
        }
        for request in requests.drain(..) {
            let answer = newest
                .as_ref()
                .map_err(|error| Error::unavailable("the store (PostgreSQL)", error.to_string()));
            // The caller may have given up.
            let _ = request.send(answer.cloned());
        }
    }
}

/// Retries once with another connection if a pooled one was closed meanwhile.
async fn query(pool: &Pool) -> Result<Newest> {
    match once(&connection(pool).await?).await {
        Err(error) if error.is_closed() => once(&connection(pool).await?).await.map_err(failed),
        answer => answer.map_err(failed),
    }
}

async fn once(client: &Pooled) -> Result<Newest, PgError> {
    let statement = client.prepare_cached("SELECT event_seq, kinds::text FROM meta").await?;
    let row = client.query_one(&statement, &[]).await?;
    let kinds = serde_json::from_str(row.get(1)).unwrap_or_default();
    Ok(Newest { seq: row.get(0), kinds: Arc::new(kinds) })
}
