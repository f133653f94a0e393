//! The status that the operator writes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Line;
use super::phase::Phase;
use super::stream::Stream;

/// What a stream's status should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub phase: Phase,
    pub message: String,
    /// Something is in the way, whatever the phase.
    pub trouble: bool,
}

impl Status {
    pub fn new(phase: Phase, message: impl Into<String>) -> Status {
        Status { phase, message: message.into(), trouble: false }
    }

    pub fn trouble(phase: Phase, message: impl Into<String>) -> Status {
        Status { phase, message: message.into(), trouble: true }
    }

    /// The type of its one condition, and the reason, as the existing operator names them.
    pub fn condition(&self) -> (&'static str, &'static str) {
        let reason = match self.phase {
            Phase::New | Phase::Pending => "StreamPending",
            Phase::Backfilling => "StreamBackfilling",
            Phase::Running => "StreamRunning",
            Phase::Scheduled => "StreamScheduled",
            Phase::Suspended => "StreamSuspended",
            Phase::Failed => "StreamFailed",
        };
        let kind = match self.phase {
            _ if self.trouble => "Error",
            Phase::Failed => "Error",
            Phase::New | Phase::Pending | Phase::Suspended => "Warning",
            Phase::Backfilling | Phase::Running | Phase::Scheduled => "Ready",
        };
        (kind, reason)
    }

    /// Whether the stream says all of this already.
    pub fn is_of(&self, stream: &Stream, line: Line) -> bool {
        let same_phase = self.phase.label(line) == stream.phase.label(line);
        same_phase
            && match &stream.written {
                Some(written) => {
                    *written.message == *self.message
                        && *written.hash == *stream.hash
                        && written.kind.eq_ignore_ascii_case(self.condition().0)
                }
                None => self.phase == Phase::New,
            }
    }

    /// A merge patch. Fields that a CRD does not know are dropped by the API server; what it would
    /// refuse is not there.
    pub fn patch(&self, stream: &Stream, line: Line, now: Timestamp) -> Value {
        let (kind, reason) = self.condition();
        let kind = match line {
            Line::V1 => kind.to_owned(),
            Line::Beta => kind.to_uppercase(),
        };
        let unchanged = stream.phase == self.phase;
        let written = stream.written.as_ref().filter(|_| unchanged);
        let since = written.and_then(|written| written.since).unwrap_or(now);
        json!({ "status": {
            "phase": self.phase.label(line),
            "configurationHash": stream.hash,
            "conditions": [{
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": self.message,
                "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "observedGeneration": stream.generation,
            }],
        } })
    }
}
