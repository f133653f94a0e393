//! What is said of a stream: its status, and an event for what is new.

use super::command::{Command, Decision, Happened};
use super::stream::View;
use crate::model::Line;
use crate::model::phase::Phase;
use crate::model::request::Request;
use crate::model::status::Status;

impl View<'_> {
    /// It goes on when something that is awaited has happened.
    pub(super) fn wait(&self, why: impl Into<String>) -> Decision {
        let phase = match (self.stream.phase, self.open_request()) {
            // Its first backfill is still to be asked for.
            (Phase::New, None) => Phase::New,
            _ => Phase::Pending,
        };
        let status = Status::new(phase, self.stream, why);
        let name = self.name();
        let happened = match (self.stream.phase, self.open_request()) {
            (Phase::New, _) => Happened::normal(
                "StreamCreated",
                format!("Backfill was requested for the new stream definition: {name}"),
            ),
            (Phase::Backfilling, None) => self.started(Phase::Pending),
            (_, Some(_)) => Happened::normal(
                "BackfillRequested",
                format!("Backfill was requested for stream {name}"),
            ),
            (Phase::Suspended | Phase::Failed, None) => self.started(Phase::Pending),
            (_, None) => Happened::normal("StreamPending", status.message.clone()),
        };
        Decision { commands: self.say(status, happened), ..Decision::default() }
    }

    /// Something is in the way that only a change of the world removes.
    pub(super) fn trouble(&self, reason: &'static str, why: impl Into<String>) -> Decision {
        let why = why.into();
        let phase = match (reason, self.stream.phase) {
            // What is new stays so: its first backfill is still to come.
            (_, Phase::New) => Phase::New,
            ("NoValidBackend", _) => Phase::Pending,
            // What runs goes on as it is.
            (_, phase) => phase,
        };
        let status = Status::trouble(phase, self.stream, why.clone());
        Decision {
            commands: self.say(status, Happened::warning(reason, why)),
            ..Decision::default()
        }
    }

    /// Ends the phase Failed before a Job is created: a Job that is seen in that phase is one that
    /// failed, and one that fails before its start is written down counts as a new failure.
    pub(super) fn leave_failed(&self) -> Vec<Command> {
        if self.stream.phase != Phase::Failed {
            return Vec::new();
        }
        let message = "The stream is being started again after a failure.";
        let status = Status::new(Phase::Pending, self.stream, message);
        self.say(status, self.started(Phase::Pending))
    }

    /// Writes the status and tells of it, if it is not written already. An event is for what is
    /// new: another phase, or other trouble.
    pub(super) fn say(&self, status: Status, happened: Happened) -> Vec<Command> {
        if status.is_of(self.stream, self.class.line) {
            return Vec::new();
        }
        let moved = status.phase.label(self.class.line) != self.stream.phase.label(self.class.line);
        let tell = moved || status.trouble;
        let mut commands = vec![Command::SetStatus(status)];
        commands.extend(tell.then_some(Command::Publish(happened)));
        commands
    }

    /// Why a stream runs that did not before.
    pub(super) fn started(&self, now: Phase) -> Happened {
        let name = self.name();
        match self.stream.phase {
            Phase::Backfilling => {
                let by = |request: &&Request| self.speaks_of(request);
                match self.requests().find(by) {
                    None if self.class.line == Line::V1 => Happened::normal(
                        "BackfillNotRequested",
                        format!(
                            "The backfill request for stream {name} is gone, so its backfill was stopped"
                        ),
                    ),
                    _ => Happened::normal(
                        "BackfillCompleted",
                        format!("Backfill for stream {name} has been completed"),
                    ),
                }
            }
            Phase::Suspended => {
                Happened::normal("StreamResumed", format!("The stream {name} has been resumed"))
            }
            Phase::Failed => Happened::normal(
                "StreamRecovered",
                format!("The stream {name} has been started again after a failure"),
            ),
            _ if now == Phase::Scheduled => {
                Happened::normal("StreamScheduled", format!("The stream {name} has been scheduled"))
            }
            _ => Happened::normal("StreamStarted", format!("The stream {name} has been started")),
        }
    }
}
