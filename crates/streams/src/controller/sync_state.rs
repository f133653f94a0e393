//! Which watches have listed their objects: nothing is decided before all have.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::model::CrdVersion;
use crate::model::watch::{ApiError, Resource, WatchEvent};

/// The targets that must be listed before anything is decided, besides classes.
pub const REQUIRED: [Resource; 5] = [
    Resource::Jobs,
    Resource::CronJobs,
    Resource::BackfillRequests,
    Resource::Templates(CrdVersion::V1),
    Resource::Templates(CrdVersion::V1Beta1),
];

pub struct SyncState {
    watches: Mutex<BTreeMap<(&'static str, bool), State>>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// It has been listed, or is known not to exist.
    synced: bool,
    /// The last error that only a person can resolve.
    error: Option<String>,
    /// Since when it works again: a list may succeed although the watch after it is refused.
    works_since: Option<Instant>,
}

/// How long a watch must work before its error is cleared.
const STABLE_AFTER: Duration = Duration::from_secs(2);

/// An error that keeps the operator from acting.
pub struct Blocked {
    /// The message of Kubernetes, which names the verb and the resource.
    pub said: String,
    /// When the error may be cleared.
    pub requeue_at: Option<Instant>,
}

impl Default for SyncState {
    fn default() -> SyncState {
        SyncState { watches: Mutex::default(), synced: watch::Sender::new(false) }
    }
}

impl SyncState {
    /// Records a watch event. Returns whether the blocking error changed.
    pub fn record(&self, target: &Resource, event: &WatchEvent) -> bool {
        if !matches!(event, WatchEvent::Snapshot(_) | WatchEvent::Error(_)) {
            return false;
        }
        let mut all = self.watches.lock();
        let state = all.entry(name(target)).or_default();
        let before = (state.error.clone(), state.works_since);
        match event {
            // Without permission to read v1beta1 there are no templates of it.
            WatchEvent::Error(ApiError::Forbidden(_))
                if *target == Resource::Templates(CrdVersion::V1Beta1) =>
            {
                state.synced = true;
            }
            WatchEvent::Snapshot(_) | WatchEvent::Error(ApiError::NotFound) => {
                state.synced = true;
                state.works_since = state.works_since.or_else(|| Some(Instant::now()));
            }
            WatchEvent::Error(error @ (ApiError::Forbidden(_) | ApiError::Invalid(_))) => {
                state.error = Some(error.to_string());
                state.works_since = None;
            }
            _ => {}
        }
        let changed = state.error.is_some() && before != (state.error.clone(), state.works_since);
        let synced = REQUIRED.iter().all(|target| all.get(&name(target)).is_some_and(|s| s.synced));
        drop(all);
        if synced {
            self.synced.send_if_modified(|now| !std::mem::replace(now, true));
        }
        changed
    }

    /// Becomes true when everything that is required has been listed once.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub fn blocked(&self) -> Option<Blocked> {
        let all = self.watches.lock();
        all.values().find_map(|state| {
            let said = state.error.clone()?;
            let requeue_at = state.works_since.map(|works_since| works_since + STABLE_AFTER);
            requeue_at.is_none_or(|at| at > Instant::now()).then_some(Blocked { said, requeue_at })
        })
    }
}

/// The label, and whether it is of v1beta1.
fn name(target: &Resource) -> (&'static str, bool) {
    use CrdVersion::V1Beta1;
    (target.label(), matches!(target, Resource::Classes(V1Beta1) | Resource::Templates(V1Beta1)))
}
