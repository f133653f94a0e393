//! Backfills: which one should run, and how it proceeds.

use super::action::{Action, Decision, K8sEvent, Mode, StopReason};
use super::build;
use super::drift::RESTART_REQUESTED;
use super::status::{backfill_requested, created};
use super::stream::{View, ending, restart_requested, stop, stop_schedule};
use crate::model::backfill_request::BackfillRequest;
use crate::model::job::{Job, JobResult};
use crate::model::phase::Phase;
use crate::model::spec_layout::{Backend, Execution};
use crate::model::status::{Status, job_suffix, request_in_message, request_suffix};
use crate::model::{CrdVersion, STATE};

/// A requested backfill.
pub(super) enum Backfill<'a> {
    Requested(&'a BackfillRequest),
    /// v1beta1: an annotation requests it, or the stream is new.
    Reload,
}

impl View<'_> {
    /// The backfill that should run, if any; or the action that requests it.
    pub(super) fn backfill(&self, execution: &Execution) -> Result<Option<Backfill<'_>>, Action> {
        let capture = matches!(execution.backend, Some(Backend::ChangeCapture { .. }));
        if self.class.crd_version == CrdVersion::V1Beta1 {
            let wanted = self.state() == Some("reload-requested")
                || self.stream.phase == Phase::New && self.job().is_none()
                || self.job().is_some_and(|job| {
                    job.backfilling && !job.complete()
                        || matches!(
                            job.state.as_deref(),
                            Some("schema-mismatch" | "reload-requested")
                        )
                });
            return Ok(wanted.then_some(Backfill::Reload));
        }
        if let Some(open) = self.open_request() {
            return Ok(Some(Backfill::Requested(open)));
        }
        if self.stream.phase == Phase::New && capture && self.initial_request().is_none() {
            return Err(self.request_initial_backfill());
        }
        Ok(None)
    }

    pub(super) fn run_backfill(&self, execution: &Execution, backfill: &Backfill<'_>) -> Decision {
        if let Some(cron_job) = self.cron_job() {
            return match stop_schedule(cron_job) {
                Some(stop) => Decision::of([stop]),
                None => self.wait("Its CronJob is ending, then the backfill starts."),
            };
        }
        let (mode, request) = match backfill {
            Backfill::Requested(request) => {
                (Mode::Backfill(Some((*request.object_name.name).into())), Some(*request))
            }
            Backfill::Reload => (Mode::Backfill(None), None),
        };
        let Some(job) = self.job() else {
            if let Some(JobResult::Complete) = self.last_result()
                && self.stream.phase == Phase::Backfilling
                && let Some(request) = request.filter(|request| self.status_names(request))
            {
                return Decision::of([self.complete(request)]);
            }
            if let Some(ask) = self.look_up_job_result() {
                return Decision::of([ask]);
            }
            if !self.observed.may_start_backfill() {
                let many = self.observed.running_backfills;
                let why = format!("Waiting: {many} backfills are running, and no more may.");
                return Decision { waiting_for_backfill: true, ..self.wait(why) };
            }
            // Only a layout without a backend has no template for backfills.
            let Some(template) = &execution.backfill else { return self.no_backend() };
            return self.start(template, mode, request);
        };
        let ours = job.backfilling
            && match request {
                Some(request) => job.backfill_id.as_deref() == Some(&*request.object_name.name),
                None => true,
            };
        if job.deleting {
            return self.wait(ending(job));
        }
        let annotated = request.is_none() && self.state() == Some("reload-requested");
        if !ours {
            let mut actions = Vec::new();
            if request.is_none() && !annotated {
                // The Job requests the backfill by an annotation, which is deleted with it.
                let value = Some("reload-requested".into());
                actions.push(Action::Annotate { name: STATE, value });
            }
            if self.stream.phase == Phase::Running {
                let status = Status::new(Phase::Pending, self.stream, ending(job));
                actions.extend(self.write_status(status, backfill_requested(self.name())));
            }
            actions.extend(stop(job, StopReason::Backfill));
            return Decision::of(actions);
        }
        if job.complete() {
            let complete = request.map(|request| self.complete(request));
            return Decision::of(complete.into_iter().chain(stop(job, StopReason::Ended)));
        }
        if annotated {
            // The backfill has started, so the annotation has served its purpose.
            return Decision::of([Action::Annotate { name: STATE, value: None }]);
        }
        if restart_requested(self.stream, job.made_from.restart.as_deref()) {
            return self.restart(job, RESTART_REQUESTED);
        }
        self.backfilling(job, request)
    }

    /// Whether the status says that this request is being carried out.
    pub(super) fn status_names(&self, request: &BackfillRequest) -> bool {
        let status = self.stream.status.as_ref();
        let named = status.and_then(|status| request_in_message(&status.message));
        named == Some(&*request.object_name.name)
    }

    fn complete(&self, request: &BackfillRequest) -> Action {
        Action::CompleteRequest { name: (*request.object_name.name).into() }
    }

    fn backfilling(&self, job: &Job, request: Option<&BackfillRequest>) -> Decision {
        let job = job_suffix(&job.uid);
        let message = match request {
            Some(request) => {
                let request = request_suffix(&request.object_name.name);
                format!("The stream is currently backfilling data{job}{request}")
            }
            None => format!("The stream is currently backfilling data{job}."),
        };
        let mut status = Status::new(Phase::Backfilling, self.stream, message);
        status.hash = build::configuration_hash(self.stream, request);
        let name = self.name();
        let event = match self.stream.phase {
            Phase::New => created(name),
            Phase::Pending => K8sEvent::normal(
                "BackfillStarted",
                format!("Backfill for stream {name} has started"),
            ),
            _ => backfill_requested(name),
        };
        Decision::of(self.write_status(status, event))
    }
}
