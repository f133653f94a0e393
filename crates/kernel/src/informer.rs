//! A copy in memory of all objects of some kinds, for whoever reads them all, and often.
//!
//! It is read from the store once and follows the event log from there: an object that is written
//! without an event, or with one that holds something else, is not seen. [`Informer::catch_up`] makes
//! reading it as good as reading the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::log::EventFilter;
use crate::wait::RECHECK;
use crate::{Error, Key, Object, ObjectQuery, Result, Store};

/// What whoever keeps the copy is told.
#[derive(Debug, Clone)]
pub enum CacheUpdate {
    /// An object as it is now; also that it was deleted. After a load it may come once more as it
    /// was before: of two, the higher revision counts.
    Upsert(Object),
    /// Everything was read anew, at the first load or because events were forgotten that were not
    /// yet seen. Of what was seen before, only these are left.
    Resync(HashSet<Key>),
}

/// Puts a sight into the copy. The number is that of the event, or of the newest event before the
/// load. Runs on the follower's task, so it must be quick.
pub type OnUpdate = Arc<dyn Fn(CacheUpdate, i64) + Send + Sync>;

/// Whether objects of a kind are to be seen.
pub type KindFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

pub struct Informer {
    store: Arc<dyn Store>,
    kinds: Vec<String>,
    kinds_filter: KindFilter,
    on_update: OnUpdate,
    /// The last event that was applied.
    seq: watch::Sender<i64>,
}

/// Objects, or events, that are read at once.
const BATCH: usize = 1000;
/// Before the next try, when the store does not answer.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a reader waits for the copy. It is behind by milliseconds, unless the store is away.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

impl Informer {
    /// Reads everything of these kinds, then what happened meanwhile. Returns when it is up to
    /// date.
    pub async fn load(
        store: Arc<dyn Store>,
        kinds: &[String],
        kinds_filter: KindFilter,
        on_update: OnUpdate,
    ) -> Result<Arc<Informer>> {
        let (kinds, seq) = (kinds.to_vec(), watch::Sender::new(0));
        let informer = Informer { store, kinds, kinds_filter, on_update, seq };
        informer.read_all().await?;
        while informer.poll().await? {}
        Ok(Arc::new(informer))
    }

    /// Follows until stopped. Survives the store being away.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.run_forever()).await;
    }

    /// Returns when everything committed before this call has been applied.
    pub async fn catch_up(&self) -> Result<()> {
        let newest = self.store.newest_event().await?;
        if self.seq() >= newest {
            return Ok(());
        }
        let behind = "the copy in memory is behind";
        tokio::time::timeout(CATCH_UP_TIMEOUT, self.wait_for_seq(newest))
            .await
            .map_err(|_| Error::unavailable("what was written last", behind))
    }

    /// Returns when the event of this number has been applied, and all before it.
    pub async fn wait_for_seq(&self, number: i64) {
        // It cannot end before it is there: the sender is ours.
        let _ = self.seq.subscribe().wait_for(|seq| *seq >= number).await;
    }

    /// The number of the last event that was applied.
    pub fn seq(&self) -> i64 {
        *self.seq.borrow()
    }

    async fn run_forever(&self) {
        let mut wakeups = self.store.wakeups().events();
        loop {
            let heard = *wakeups.borrow_and_update();
            match self.poll().await {
                Ok(true) => {}
                Ok(false) => {
                    let known = heard.max(self.seq());
                    let more = wakeups.wait_for(|newest| *newest > known);
                    let _ = tokio::time::timeout(RECHECK, more).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "reading the event log failed; will retry");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// The number comes first: what is written while the pages are read has a higher one, and is
    /// seen again by its event.
    async fn read_all(&self) -> Result<()> {
        let seq = self.store.newest_event().await?;
        let mut there = HashSet::new();
        for kind in &self.kinds {
            let mut find =
                ObjectQuery { kind: Some(kind.clone()), limit: BATCH, ..ObjectQuery::default() };
            loop {
                let page = self.store.find(&find).await?;
                for object in page.objects {
                    there.insert(object.key.clone());
                    (self.on_update)(CacheUpdate::Upsert(object), seq);
                }
                find.after = page.next;
                if find.after.is_none() {
                    break;
                }
            }
        }
        (self.on_update)(CacheUpdate::Resync(there), seq);
        self.seq.send_replace(seq);
        Ok(())
    }

    /// Applies the next events. Whether there may be more at once.
    async fn poll(&self) -> Result<bool> {
        let seq = self.seq();
        let events = self.store.events(seq, &EventFilter::default(), BATCH).await?;
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(false) };
        // Numbers have no gaps, and the newest event is never forgotten.
        if first.seq != seq + 1 {
            tracing::info!(seq, oldest = first.seq, "events were forgotten; reading all anew");
            self.read_all().await?;
            return Ok(true);
        }
        let (last, more) = (last.seq, events.len() == BATCH);
        for event in events.iter().filter(|event| (self.kinds_filter)(event.subject.kind())) {
            if let Ok(object) = event.data.parse::<Object>() {
                (self.on_update)(CacheUpdate::Upsert(object), event.seq);
            }
        }
        self.seq.send_replace(last);
        Ok(more)
    }
}
