//! The first backfill of a new stream, and the request for it.

use super::build;
use super::command::{Command, Decision, Mode};
use super::stream::View;
use crate::model::Place;
use crate::model::job::Job;
use crate::model::layout::Execution;
use crate::model::phase::Phase;
use crate::model::request::Request;

impl View<'_> {
    pub(super) fn ask_initially(&self) -> Command {
        let manifest = build::initial_request(self.class, self.stream);
        Command::RequestInitialBackfill { manifest }
    }

    pub(super) fn initial_request(&self) -> Option<&Request> {
        let place = Place::new(&self.stream.place().namespace, &build::initial_name(self.stream));
        let request = self.index.request(&place)?;
        request.is_for(&self.class.kind, self.stream).then_some(request)
    }

    /// The first backfill of a new stream: its Job goes before its request, which follows from the
    /// stream and is made next, so that data flows as soon as can be.
    pub(super) fn start_first(&self, execution: &Execution, ask: Command) -> Decision {
        let free = self.job().is_none() && self.cron().is_none() && self.index.backfill_allowed();
        let Some(template) = execution.backfill.as_ref().filter(|_| free) else {
            return Decision::of([ask]);
        };
        let request = Request::initial(self.class, self.stream, build::initial_name(self.stream));
        let mode = Mode::Backfill(Some((*request.place.name).into()));
        let start = self.start(template, mode, Some(&request));
        match start.commands[..] {
            [Command::StartJob { .. }] => start,
            _ => Decision::of([ask]),
        }
    }

    /// The request of a first backfill that is running, if a crash came between the two.
    pub(super) fn owed_request(&self) -> Option<Command> {
        let name = build::initial_name(self.stream);
        let first = |job: &Job| job.backfill_id.as_deref() == Some(&*name);
        let owed = self.stream.phase == Phase::New
            && self.job().is_some_and(first)
            && self.initial_request().is_none();
        owed.then(|| self.ask_initially())
    }
}
