//! Which watches have told target there is: nobody acts on half a picture.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::model::CrdVersion;
use crate::model::watch::{ApiError, WatchEvent, WatchTarget};

/// All that must be known before anything is decided, beside the classes.
pub const REQUIRED: [WatchTarget; 5] = [
    WatchTarget::Jobs,
    WatchTarget::CronJobs,
    WatchTarget::BackfillRequests,
    WatchTarget::Templates(CrdVersion::V1),
    WatchTarget::Templates(CrdVersion::V1Beta1),
];

pub struct SyncState {
    /// The last word of each.
    told: Mutex<BTreeMap<&'static str, State>>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// It has been listed, or is known not to be there.
    synced: bool,
    /// What was refused last.
    error: Option<String>,
    /// Since when it works again: a list may succeed where the watch after it is refused.
    works_since: Option<Instant>,
}

/// So long it must have worked.
const STABLE_AFTER: Duration = Duration::from_secs(2);

/// What keeps the operator from acting.
pub struct Blocked {
    /// In Kubernetes' words, which name the verb and the resource.
    pub said: String,
    /// When it may be over.
    pub requeue_at: Option<Instant>,
}

impl Default for SyncState {
    fn default() -> SyncState {
        SyncState { told: Mutex::default(), synced: watch::Sender::new(false) }
    }
}

impl SyncState {
    /// Whether target keeps the operator from acting is something else now.
    pub fn record(&self, target: &WatchTarget, told: &WatchEvent) -> bool {
        if !matches!(told, WatchEvent::Snapshot(_) | WatchEvent::Error(_)) {
            return false;
        }
        let mut all = self.told.lock();
        let state = all.entry(name(target)).or_default();
        let before = (state.error.clone(), state.works_since);
        match told {
            // The older line is looked for, and whoever may not look has none of it.
            WatchEvent::Error(ApiError::Forbidden(_))
                if *target == WatchTarget::Templates(CrdVersion::V1Beta1) =>
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
        let synced = REQUIRED.iter().all(|target| all.get(name(target)).is_some_and(|s| s.synced));
        drop(all);
        if synced {
            self.synced.send_if_modified(|now| !std::mem::replace(now, true));
        }
        changed
    }

    /// True from when everything that is needed has been listed once.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub fn blocked(&self) -> Option<Blocked> {
        let all = self.told.lock();
        all.values().find_map(|state| {
            let said = state.error.clone()?;
            let requeue_at = state.works_since.map(|works_since| works_since + STABLE_AFTER);
            requeue_at.is_none_or(|at| at > Instant::now()).then_some(Blocked { said, requeue_at })
        })
    }
}

fn name(target: &WatchTarget) -> &'static str {
    match target {
        WatchTarget::Classes(CrdVersion::V1) => "classes",
        WatchTarget::Classes(CrdVersion::V1Beta1) => "classes of v1beta1",
        WatchTarget::Streams(_) => "streams",
        WatchTarget::Jobs => "jobs",
        WatchTarget::CronJobs => "cronjobs",
        WatchTarget::BackfillRequests => "backfillrequests",
        WatchTarget::Templates(CrdVersion::V1) => "templates",
        WatchTarget::Templates(CrdVersion::V1Beta1) => "templates of v1beta1",
        WatchTarget::Secrets => "secrets",
    }
}
