//! The number of the newest event, asked for by many at once: one query answers all who came before
//! it began. So there is one under way at the most, and whoever leaves leaves nothing undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool_postgres::Pool;
use tokio::sync::{Mutex, watch};

use super::{connection, failed};
use crate::Result;
use crate::store::Hints;

pub struct Newest {
    pool: Pool,
    hints: Arc<Hints>,
    /// How many queries have begun.
    begun: AtomicU64,
    /// The last that has ended: which it was, and its answer.
    ended: watch::Sender<(u64, i64)>,
    /// Held while a query is under way.
    turn: Mutex<()>,
}

impl Newest {
    pub fn new(pool: Pool, hints: Arc<Hints>) -> Newest {
        let (begun, ended) = (AtomicU64::new(0), watch::Sender::new((0, 0)));
        Newest { pool, hints, begun, ended, turn: Mutex::default() }
    }

    pub async fn ask(&self) -> Result<i64> {
        // Only a query that begins after this will do.
        let before = self.begun.load(Ordering::SeqCst);
        let mut ended = self.ended.subscribe();
        let answered =
            async { ended.wait_for(|(number, _)| *number > before).await.map(|answer| answer.1) };
        tokio::select! {
            biased;
            Ok(newest) = answered => Ok(newest),
            _turn = self.turn.lock() => {
                let (number, newest) = *self.ended.borrow();
                if number > before { Ok(newest) } else { self.query().await }
            }
        }
    }

    /// An error is the asker's alone; the next in turn tries again.
    async fn query(&self) -> Result<i64> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let client = connection(&self.pool).await?;
        let statement =
            client.prepare_cached("SELECT event_seq FROM meta").await.map_err(failed)?;
        let newest = client.query_one(&statement, &[]).await.map_err(failed)?.get(0);
        self.hints.hint_event(newest);
        self.ended.send_replace((number, newest));
        Ok(newest)
    }
}
