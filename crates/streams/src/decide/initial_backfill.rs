//! The initial backfill of a new stream and its request.

use super::action::{Action, Decision, Mode};
use super::build;
use super::stream::View;
use crate::model::NamespacedName;
use crate::model::backfill_request::BackfillRequest;
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::model::spec_layout::Execution;

impl View<'_> {
    pub(super) fn request_initial_backfill(&self) -> Action {
        let manifest = build::initial_request_manifest(self.class, self.stream);
        Action::RequestInitialBackfill { manifest }
    }

    pub(super) fn initial_request(&self) -> Option<&BackfillRequest> {
        let object_name = NamespacedName::new(
            &self.stream.object_name().namespace,
            &build::initial_request_name(self.stream),
        );
        let request = self.observed.all_requests.get(&object_name)?;
        request.is_for(&self.class.kind, self.stream).then_some(request)
    }

    /// Starts the initial backfill. Its Job is created before the request, whose name and content
    /// are derived from the stream, so that data flows as early as possible.
    pub(super) fn start_initial_backfill(&self, execution: &Execution, ask: Action) -> Decision {
        let free =
            self.job().is_none() && self.cron_job().is_none() && self.observed.may_start_backfill();
        let Some(template) = execution.backfill.as_ref().filter(|_| free) else {
            return Decision::of([ask]);
        };
        let request = BackfillRequest::initial(
            self.class,
            self.stream,
            build::initial_request_name(self.stream),
        );
        let mode = Mode::Backfill(Some((*request.object_name.name).into()));
        let start = self.start(template, mode, Some(&request));
        match start.actions[..] {
            [Action::StartJob { .. }] => start,
            _ => Decision::of([ask]),
        }
    }

    /// The request of an initial backfill that runs, if a crash came between the two.
    pub(super) fn missing_initial_request(&self) -> Option<Action> {
        let name = build::initial_request_name(self.stream);
        let first = |job: &Job| job.backfill_id.as_deref() == Some(&*name);
        let owed = self.stream.phase == Phase::New
            && self.job().is_some_and(first)
            && self.initial_request().is_none();
        owed.then(|| self.request_initial_backfill())
    }
}
