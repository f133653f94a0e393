//! Feeds an in-memory copy of all objects of some kinds, for callers that read all of them often.
//!
//! Lists the store once and tails the event log from there: an object that is written without an
//! event, or with other data in it, is missed. After [`Informer::catch_up`] the copy is as fresh as
//! the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::event_tail::{EventReader, EventTail, Page};
use crate::log::EventFilter;
use crate::store::{KindFilter, Watermark};
use crate::{Error, Key, Object, ObjectQuery, Result};

/// An update of the copy.
#[derive(Debug, Clone)]
pub enum CacheUpdate {
    /// The current object, which may be a deleted one. After a resync an older revision may come once
    /// more: the higher revision wins.
    Upsert(Box<Object>),
    /// The store was listed, at the start or because unread events were purged. Only these keys
    /// still exist.
    Resync(HashSet<Key>),
}

/// Applies an update to the copy. The number is the event's, or the newest one before the list.
/// Runs on the informer's task, so it must be quick.
pub type OnUpdate = Arc<dyn Fn(CacheUpdate, i64) + Send + Sync>;

pub struct Informer {
    tail: EventTail,
    reader: Mutex<EventReader>,
    kinds: Vec<String>,
    kinds_filter: KindFilter,
    on_update: OnUpdate,
    /// The last event that was applied.
    seq: Watermark,
}

/// Objects or events per read.
const BATCH: usize = 1000;
/// The wait before a retry when the store is unavailable.
const PAUSE: Duration = Duration::from_millis(500);
/// How long `catch_up` waits. The copy lags by milliseconds unless the store is unavailable.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

impl Informer {
    /// Lists all objects of these kinds, then reads the events up to now.
    pub async fn load(
        tail: &EventTail,
        kinds: &[String],
        kinds_filter: KindFilter,
        on_update: OnUpdate,
    ) -> Result<Arc<Informer>> {
        let (kinds, seq) = (kinds.to_vec(), Watermark::default());
        let reader = Mutex::new(tail.subscribe(0, EventFilter::default()));
        let informer = Informer { tail: tail.clone(), reader, kinds, kinds_filter, on_update, seq };
        let mut reader = informer.reader.lock().await;
        informer.read_all(&mut reader).await?;
        while informer.poll(&mut reader).await? {}
        drop(reader);
        Ok(Arc::new(informer))
    }

    /// Tails the event log until stopped. Retries while the store is unavailable.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.run_forever()).await;
    }

    /// Returns when everything of these kinds that was committed before this call has been applied.
    pub async fn catch_up(&self) -> Result<()> {
        let newest = self.tail.store().newest_event_of(&self.kinds_filter).await?;
        if self.seq() >= newest {
            return Ok(());
        }
        let behind = "the copy in memory is behind";
        tokio::time::timeout(CATCH_UP_TIMEOUT, self.wait_for_seq(newest))
            .await
            .map_err(|_| Error::unavailable("the latest state", behind))
    }

    /// Returns when the event of this number has been applied, and all before it.
    pub async fn wait_for_seq(&self, number: i64) {
        self.seq.above(number.saturating_sub(1)).await;
    }

    /// The number of the last event that was applied.
    pub fn seq(&self) -> i64 {
        self.seq.get()
    }

    async fn run_forever(&self) {
        let mut reader = self.reader.lock().await;
        loop {
            match self.poll(&mut reader).await {
                Ok(true) => {}
                Ok(false) => reader.wait().await,
                Err(error) => {
                    tracing::warn!(%error, "reading the event log failed; will retry");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Reads the sequence number first: writes during the list have a higher one and come again as
    /// events.
    async fn read_all(&self, reader: &mut EventReader) -> Result<()> {
        let store = self.tail.store();
        let seq = store.newest_event().await?;
        let mut there = HashSet::new();
        for kind in &self.kinds {
            let mut find =
                ObjectQuery { kind: Some(kind.clone()), limit: BATCH, ..ObjectQuery::default() };
            loop {
                let page = store.find(&find).await?;
                for object in page.objects {
                    there.insert(object.key.clone());
                    (self.on_update)(CacheUpdate::Upsert(Box::new(object)), seq);
                }
                find.after = page.next;
                if find.after.is_none() {
                    break;
                }
            }
        }
        (self.on_update)(CacheUpdate::Resync(there), seq);
        self.seq.raise(seq);
        *reader = self.tail.subscribe(seq, EventFilter::default());
        Ok(())
    }

    /// Applies the next events. Returns whether more may be ready.
    async fn poll(&self, reader: &mut EventReader) -> Result<bool> {
        let (events, more) = match reader.next(BATCH).await? {
            Page::Events { events, more } => (events, more),
            Page::Expired { oldest } => {
                tracing::info!(seq = self.seq(), oldest, "unread events were purged; resyncing");
                self.read_all(reader).await?;
                return Ok(true);
            }
        };
        let events = events.iter().map(|event| &event.event);
        for event in events.filter(|event| (self.kinds_filter)(event.subject.kind())) {
            if let Ok(object) = event.data.parse::<Box<Object>>() {
                (self.on_update)(CacheUpdate::Upsert(object), event.seq);
            }
        }
        self.seq.raise(reader.after());
        Ok(more)
    }
}
