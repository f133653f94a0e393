//! The number of the newest event, asked for by many at once: one query answers all who came before
//! it began. There is one under way at the most, in a task of its own, so whoever leaves leaves
//! nothing undone, and whoever waits is woken once.

use std::sync::Arc;

use deadpool_postgres::{Object as Pooled, Pool};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Error as PgError;

use super::{connection, failed};
use crate::store::Wakeups;
use crate::{Error, Result};

/// Who may wait for the next query; beyond that requests wait for a place. More requests than one
/// process answers at once.
const WAITING_MAX: usize = 4096;

pub struct HeadReader(mpsc::Sender<Request>);

type Request = oneshot::Sender<Result<i64>>;

impl HeadReader {
    /// And what answers, for as long as it runs.
    pub fn new(pool: Pool, wakeups: Arc<Wakeups>) -> (HeadReader, impl Future<Output = ()>) {
        let (requests, waiting) = mpsc::channel(WAITING_MAX);
        (HeadReader(requests), run(pool, wakeups, waiting))
    }

    pub async fn ask(&self) -> Result<i64> {
        let stopped = || Error::unavailable("the store", "it is shutting down");
        let (request, answer) = oneshot::channel();
        self.0.send(request).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

async fn run(pool: Pool, wakeups: Arc<Wakeups>, mut waiting: mpsc::Receiver<Request>) {
    let mut requests = Vec::new();
    while waiting.recv_many(&mut requests, WAITING_MAX).await > 0 {
        let newest = query(&pool).await;
        if let Ok(newest) = newest {
            wakeups.notify_event(newest);
        }
        for request in requests.drain(..) {
            let answer = newest
                .as_ref()
                .map_err(|error| Error::unavailable("the store (PostgreSQL)", error.to_string()));
            // Whoever has left needs no answer.
            let _ = request.send(answer.copied());
        }
    }
}

/// A connection that ended while it lay in the pool is nobody's fault: another one is tried.
async fn query(pool: &Pool) -> Result<i64> {
    match once(&connection(pool).await?).await {
        Err(error) if error.is_closed() => once(&connection(pool).await?).await.map_err(failed),
        answer => answer.map_err(failed),
    }
}

async fn once(client: &Pooled) -> Result<i64, PgError> {
    let statement = client.prepare_cached("SELECT event_seq FROM meta").await?;
    Ok(client.query_one(&statement, &[]).await?.get(0))
}
