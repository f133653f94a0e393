//! How the sinks of this process are, for metrics, health and `bus status`. In memory: what must
//! survive is in cursors and objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use kernel::Timestamp;
use parking_lot::Mutex;

use crate::model::Phase;

/// How one sink is that this process relays to.
#[derive(Debug, Default)]
pub struct SinkState {
    /// The last event that is delivered or parked.
    pub seq: AtomicI64,
    /// When the oldest event that waits was committed; 0 if none waits.
    pub waiting_since: AtomicI64,
    pub delivered: AtomicU64,
    pub failures: AtomicU64,
    pub parked: AtomicU64,
    condition: Mutex<Option<(Phase, String)>>,
}

impl SinkState {
    pub fn set_condition(&self, phase: Phase, reason: &str) {
        *self.condition.lock() = Some((phase, reason.to_owned()));
    }

    pub fn condition(&self) -> (Phase, String) {
        self.condition.lock().clone().unwrap_or((Phase::Running, String::new()))
    }

    pub fn lag_events(&self, newest: i64) -> i64 {
        newest.saturating_sub(self.seq.load(Ordering::Relaxed)).max(0)
    }

    pub fn lag_ms(&self, now: Timestamp) -> i64 {
        match self.waiting_since.load(Ordering::Relaxed) {
            0 => 0,
            since => now.0.saturating_sub(since).max(0),
        }
    }
}

/// The sinks that this process relays to at present.
#[derive(Debug, Clone, Default)]
pub struct States(Arc<Mutex<BTreeMap<String, Arc<SinkState>>>>);

impl States {
    /// Adds a sink for as long as the guard lives.
    pub fn enter(&self, sink: &str) -> Entered {
        let state = Arc::new(SinkState::default());
        self.0.lock().insert(sink.to_owned(), state.clone());
        Entered { states: self.clone(), sink: sink.to_owned(), state }
    }

    pub fn all(&self) -> Vec<(String, Arc<SinkState>)> {
        self.0.lock().iter().map(|(name, state)| (name.clone(), state.clone())).collect()
    }
}

pub struct Entered {
    states: States,
    sink: String,
    pub state: Arc<SinkState>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut states = self.states.0.lock();
        if states.get(&self.sink).is_some_and(|there| Arc::ptr_eq(there, &self.state)) {
            states.remove(&self.sink);
        }
    }
}
