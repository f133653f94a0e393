//! How far a sink is.

use kernel::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far a sink is: everything up to the event `seq` is delivered or parked. A replay begins a new
/// epoch, in which events are delivered once more; the later epoch counts.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
pub struct Position {
    pub epoch: i64,
    pub seq: i64,
    /// When that event was committed: tells whether the log is still the same. Not always known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub at: Option<Timestamp>,
}

/// What a sink's cursor has besides the number of the last event. Written by the pump alone, under
/// its lease.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cursor {
    pub epoch: i64,
    /// How many of the requests to resume were carried out.
    pub resumed: i64,
    /// For how long a failing sink has been tried in vain.
    #[serde(skip_serializing_if = "is_zero")]
    pub tried_ms: u64,
    /// Events that could not be delivered and were skipped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<ParkedEvent>,
    /// Events that were purged before they were delivered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Cursor {
    /// The most parked events and gaps that are kept: a sink with more parked events stops.
    pub const ENTRIES_MAX: usize = 100;

    pub fn is_full(&self) -> bool {
        self.parked.len() >= Cursor::ENTRIES_MAX
    }

    pub fn park(&mut self, event: ParkedEvent) {
        if !self.parked.iter().any(|there| there.seq == event.seq) {
            self.parked.push(event);
        }
    }

    pub fn add_gap(&mut self, gap: Gap) {
        // After a crash the same one is found again, and may have grown.
        self.gaps.retain(|there| there.first != gap.first);
        if self.gaps.len() == Cursor::ENTRIES_MAX {
            self.gaps.remove(0);
        }
        self.gaps.push(gap);
    }
}

/// An event that could not be delivered: `bus resume` sends it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedEvent {
    pub seq: i64,
    #[schema(value_type = String)]
    pub at: Timestamp,
    pub reason: String,
}

/// Events that were purged before they were delivered: the sink was away longer than
/// `retention.unread_events_days`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gap {
    pub first: i64,
    pub last: i64,
}
