//! The status and the events of a stream.

use super::action::{Action, Decision, K8sEvent};
use super::stream::View;
use crate::model::CrdVersion;
use crate::model::phase::Phase;
use crate::model::status::Status;

impl View<'_> {
    /// Waits for an event, and says for which.
    pub(super) fn wait(&self, why: impl Into<String>) -> Decision {
        let phase = match (self.stream.phase, self.open_request()) {
            // The initial backfill has not been requested yet.
            (Phase::New, None) => Phase::New,
            _ => Phase::Pending,
        };
        let status = Status::new(phase, self.stream, why);
        let name = self.name();
        let event = match (self.stream.phase, self.open_request()) {
            (Phase::New, _) => created(name),
            (_, Some(_)) => backfill_requested(name),
            (Phase::Backfilling | Phase::Suspended | Phase::Failed, None) => {
                self.started(Phase::Pending)
            }
            (_, None) => K8sEvent::normal("StreamPending", status.message.clone()),
        };
        Decision::of(self.write_status(status, event))
    }

    /// Reports an error that only a change of the stream or of its dependencies resolves.
    pub(super) fn report_error(&self, reason: &'static str, why: impl Into<String>) -> Decision {
        let why = why.into();
        let phase = match (reason, self.stream.phase) {
            // A new stream stays new: its initial backfill has not started.
            (_, Phase::New) => Phase::New,
            ("NoValidBackend", _) => Phase::Pending,
            // A running Job is not affected.
            (_, phase) => phase,
        };
        let status = Status::error(phase, self.stream, why.clone());
        Decision::of(self.write_status(status, K8sEvent::warning(reason, why)))
    }

    /// Leaves the phase Failed before a Job is created: a Job in that phase is one that failed, and
    /// one that fails before its start is recorded counts as another failure.
    pub(super) fn leave_failed(&self) -> Vec<Action> {
        if self.stream.phase != Phase::Failed {
            return Vec::new();
        }
        let message = "The stream is being started again after a failure.";
        let status = Status::new(Phase::Pending, self.stream, message);
        self.write_status(status, self.started(Phase::Pending))
    }

    /// Writes the status unless it is current, with an event if the phase or the error is new.
    pub(super) fn write_status(&self, status: Status, event: K8sEvent) -> Vec<Action> {
        if status.is_of(self.stream, self.class.crd_version) {
            return Vec::new();
        }
        let moved = status.phase.label(self.class.crd_version)
            != self.stream.phase.label(self.class.crd_version);
        let tell = moved || status.error;
        let mut actions = vec![Action::SetStatus(status)];
        actions.extend(tell.then_some(Action::Publish(event)));
        actions
    }

    /// The event of a stream that starts to run.
    pub(super) fn started(&self, now: Phase) -> K8sEvent {
        let name = self.name();
        let requested = || self.requests().any(|request| self.status_names(request));
        let (reason, message) = match self.stream.phase {
            Phase::Backfilling if self.class.crd_version == CrdVersion::V1 && !requested() => (
                "BackfillNotRequested",
                format!(
                    "The backfill request for stream {name} is gone, so its backfill was stopped"
                ),
            ),
            Phase::Backfilling => {
                ("BackfillCompleted", format!("Backfill for stream {name} has been completed"))
            }
            Phase::Suspended => ("StreamResumed", format!("The stream {name} has been resumed")),
            Phase::Failed => (
                "StreamRecovered",
                format!("The stream {name} has been started again after a failure"),
            ),
            _ if now == Phase::Scheduled => {
                ("StreamScheduled", format!("The stream {name} has been scheduled"))
            }
            _ => ("StreamStarted", format!("The stream {name} has been started")),
        };
        K8sEvent::normal(reason, message)
    }
}

pub(super) fn created(name: &str) -> K8sEvent {
    let message = format!("Backfill was requested for the new stream definition: {name}");
    K8sEvent::normal("StreamCreated", message)
}

pub(super) fn backfill_requested(name: &str) -> K8sEvent {
    let message = format!("Backfill was requested for stream {name}");
    K8sEvent::normal("BackfillRequested", message)
}
