//! The number of the newest event, asked for by many at once: one query answers all who waited for
//! it to begin. So there is one under way at the most, and one group that waits for the next.

use std::sync::Arc;

use deadpool_postgres::Pool;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::{chain, connection};
use crate::store::Hints;
use crate::{Error, Result};

pub struct Newest {
    pool: Pool,
    hints: Arc<Hints>,
    /// Those whose query has not begun; whoever comes now joins them.
    waiting: Mutex<Option<Group>>,
    /// Held while a query is under way.
    turn: tokio::sync::Mutex<()>,
}

type Group = Shared<BoxFuture<'static, Result<i64, String>>>;

impl Newest {
    pub fn new(pool: Pool, hints: Arc<Hints>) -> Arc<Newest> {
        let (waiting, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Newest { pool, hints, waiting, turn })
    }

    pub async fn ask(self: &Arc<Self>) -> Result<i64> {
        let group =
            self.waiting.lock().get_or_insert_with(|| self.clone().next().boxed().shared()).clone();
        group.await.map_err(|text| Error::unavailable("the store", text))
    }

    /// Whoever leaves while others wait leaves it to them; a group that all have left is joined by
    /// the next who comes.
    async fn next(self: Arc<Self>) -> Result<i64, String> {
        let _turn = self.turn.lock().await;
        *self.waiting.lock() = None;
        let client = connection(&self.pool).await.map_err(|error| chain(&error))?;
        let query = async {
            let statement = client.prepare_cached("SELECT event_seq FROM meta").await?;
            client.query_one(&statement, &[]).await
        };
        let row = query.await.map_err(|error| chain(&error))?;
        let newest = row.get(0);
        self.hints.hint_event(newest);
        Ok(newest)
    }
}
