//! Decides what to do about a stream: its phases and their transitions.
//!
//! A reconcile proceeds as far as possible without waiting: intermediate phases are not written,
//! only those that wait for something, such as a Job that is being deleted.

use jiff::Timestamp;
use kubernetes::OwnerReference;

use super::action::{Action, Decision, K8sEvent, Mode, StopReason};
use super::requests::foreign_owner_until;
use super::{build, requests, retry};
use crate::model::backfill_request::BackfillRequest;
use crate::model::class::Class;
use crate::model::job::{CronJob, Job, JobResult};
use crate::model::observation::{LastJob, Observation};
use crate::model::phase::Phase;
use crate::model::spec_layout::{Backend, Execution};
use crate::model::status::{Status, job_in_message, job_suffix};
use crate::model::stream::Stream;
use crate::model::{CrdVersion, NamespacedName};

/// A stream that exists and everything that its decision depends on.
pub(super) struct View<'a> {
    pub observed: &'a Observation<'a>,
    pub class: &'a Class,
    pub stream: &'a Stream,
    pub now: Timestamp,
}

pub fn decide(observed: &Observation<'_>, now: Timestamp) -> Decision {
    let (Some(class), Some(stream)) = (observed.class, observed.stream) else {
        return requests::without_stream(observed);
    };
    let secrets_known = observed.secrets_listed || !stream.annotations.on_secrets;
    if stream.deleting || stream.annotations.paused || !secrets_known {
        return Decision::default();
    }
    let foreign = foreign_owner_until(
        observed.settings,
        observed.leading_since,
        observed.foreign_write_seen,
        now,
    );
    if let Some(until) = foreign {
        return Decision { requeue_at: Some(until), ..Decision::default() };
    }
    let view = View { observed, class, stream, now };
    let mut decision = view.decide();
    if decision.actions.is_empty() {
        decision.actions = requests::surplus_requests(&view);
    }
    decision
}

impl View<'_> {
    fn decide(&self) -> Decision {
        let execution = match &self.stream.execution {
            Ok(execution) => execution,
            Err(problem) => return self.report_error("InvalidSpec", problem.to_string()),
        };
        if let Some(conflict) = self.name_conflict() {
            return conflict;
        }
        if let Some(owed) = self.missing_initial_request() {
            return Decision::of([owed]);
        }
        if self.suspended(execution) {
            return self.suspend();
        }
        if self.stream.phase == Phase::Failed || self.crash_looped() {
            match retry::after_failure(self) {
                retry::Next::Start => {}
                retry::Next::Stay(decision) => return decision,
            }
        }
        if let Some(failed) = self.failed(execution) {
            return failed;
        }
        match (self.backfill(execution), &execution.backend) {
            (_, None) => self.no_backend(),
            (Err(ask), Some(_)) => self.start_initial_backfill(execution, ask),
            (Ok(Some(backfill)), Some(_)) => self.run_backfill(execution, &backfill),
            (Ok(None), Some(Backend::ChangeCapture { template })) => self.run_stream(template),
            (Ok(None), Some(Backend::Batch { schedule, template })) => {
                self.run_schedule(schedule, template)
            }
        }
    }

    pub(super) fn job(&self) -> Option<&Job> {
        self.observed.job.filter(|job| self.owns(job.owner.as_deref()))
    }

    pub(super) fn cron_job(&self) -> Option<&CronJob> {
        self.observed.cron_job.filter(|cron_job| self.owns(cron_job.owner.as_deref()))
    }

    fn owns(&self, owner: Option<&OwnerReference>) -> bool {
        owner.is_some_and(|owner| *owner.uid == *self.stream.uid)
    }

    /// A Job or CronJob of the stream's name that the stream does not own.
    fn name_conflict(&self) -> Option<Decision> {
        let object_name = self.stream.object_name();
        let job = self.observed.job.map(|job| ("Job", &job.owner));
        let cron_job = self.observed.cron_job.map(|cron_job| ("CronJob", &cron_job.owner));
        let stranger = |(_, owner): &(&str, &Option<_>)| !self.owns(owner.as_deref());
        let (what, owner) = job.filter(stranger).or(cron_job.filter(stranger))?;
        Some(match owner {
            // It belonged to an earlier stream of that name; the garbage collector deletes it.
            Some(owner) if *owner.kind == *self.class.kind && *owner.name == *object_name.name => {
                self.wait(format!("The {what} of an earlier stream of that name is still ending."))
            }
            owner => {
                let whose =
                    owner.as_ref().map_or("nobody".into(), |o| format!("{} {}", o.kind, o.name));
                let why = format!(
                    "A {what} {object_name} stands in its place and belongs to {whose}; remove it, or \
                     give the stream another name: names must be unique across kinds."
                );
                self.report_error("NameTaken", why)
            }
        })
    }

    fn suspended(&self, execution: &Execution) -> bool {
        match self.class.crd_version {
            CrdVersion::V1 => execution.suspended,
            CrdVersion::V1Beta1 => self.state() == Some("suspended"),
        }
    }

    pub(super) fn state(&self) -> Option<&str> {
        self.stream.annotations.state.as_deref()
    }

    pub(super) fn crash_looped(&self) -> bool {
        self.class.crd_version == CrdVersion::V1Beta1 && self.state() == Some("crash-loop")
    }

    fn suspend(&self) -> Decision {
        let mut actions = Vec::new();
        actions.extend(self.job().and_then(|job| stop(job, StopReason::Suspended)));
        actions.extend(self.cron_job().and_then(stop_schedule));
        let status = Status::new(Phase::Suspended, self.stream, "The stream is suspended.");
        let message = match self.stream.phase {
            Phase::New => {
                format!(
                    "The new stream {} was added in the suspended state, nothing to do",
                    self.name()
                )
            }
            Phase::Backfilling => {
                format!("The backfilling for stream {} has been suspended", self.name())
            }
            _ => "The stream was suspended".into(),
        };
        actions.extend(self.write_status(status, K8sEvent::normal("StreamSuspended", message)));
        Decision::of(actions)
    }

    /// Handles the failure of the stream's Job.
    fn failed(&self, execution: &Execution) -> Option<Decision> {
        let batch = matches!(execution.backend, Some(Backend::Batch { .. }));
        if batch && self.stream.phase != Phase::Backfilling {
            // A Job from before the stream became a batch is not a run of the batch.
            return None;
        }
        let (why, stop) = match self.job() {
            Some(job) if !job.deleting => (job.failed()?.to_owned(), stop(job, StopReason::Failed)),
            Some(_) => return None,
            None if matches!(self.stream.phase, Phase::Running | Phase::Backfilling) => {
                match self.last_result() {
                    Some(JobResult::Failed(why)) => (why.to_string(), None),
                    _ => return None,
                }
            }
            None => return None,
        };
        Some(retry::failed(self, &why, stop))
    }

    /// The last Job of this stream that was deleted. Jobs of an earlier stream of that name do not
    /// count.
    fn last_job(&self) -> Option<&LastJob> {
        let last_job = self.observed.last_job?;
        last_job.owner.as_ref().is_none_or(|owner| **owner == *self.stream.uid).then_some(last_job)
    }

    /// How the deleted Job ended that the status names, if that is known.
    pub(super) fn last_result(&self) -> Option<&JobResult> {
        let last_job = self.last_job()?;
        last_job
            .result
            .as_ref()
            .filter(|_| self.job_in_status().is_none_or(|uid| *last_job.uid == *uid))
    }

    /// The uid of the Job that the status names.
    fn job_in_status(&self) -> Option<&str> {
        job_in_message(&self.stream.status.as_ref()?.message)
    }

    /// Looks up the result of a Job that was deleted unobserved, by the events that it left.
    pub(super) fn look_up_job_result(&self) -> Option<Action> {
        if !matches!(self.stream.phase, Phase::Running | Phase::Backfilling) {
            return None;
        }
        let last_job = self.last_job();
        let uid = match (self.job_in_status(), last_job) {
            (Some(uid), Some(last_job)) if *last_job.uid == *uid && last_job.result.is_some() => {
                return None;
            }
            (Some(uid), _) => uid,
            (None, Some(last_job)) if last_job.result.is_none() => &last_job.uid,
            (None, _) => return None,
        };
        Some(Action::LookUpJobResult { uid: uid.into() })
    }

    /// The requests for this stream, the oldest first.
    pub(super) fn requests(&self) -> impl Iterator<Item = &BackfillRequest> {
        self.observed
            .requests
            .iter()
            .copied()
            .filter(|request| request.is_for(&self.class.kind, self.stream))
    }

    /// The oldest open request.
    pub(super) fn open_request(&self) -> Option<&BackfillRequest> {
        self.requests().find(|request| !request.completed && !request.deleting)
    }

    fn run_stream(&self, template: &NamespacedName) -> Decision {
        if let Some(cron_job) = self.cron_job() {
            return match stop_schedule(cron_job) {
                Some(stop) => Decision::of([stop]),
                None => self.wait("Its CronJob is ending, then the stream starts."),
            };
        }
        let Some(job) = self.job() else {
            return match self.look_up_job_result() {
                Some(ask) => Decision::of([ask]),
                None => self.start(template, Mode::Stream, None),
            };
        };
        if job.deleting {
            return self.wait(ending(job));
        }
        if job.backfilling {
            return Decision::of(stop(job, StopReason::Ended));
        }
        if let Some(why) = self.changed(job, template) {
            return match self.observed.restart_at {
                Some(at) if job.ended.is_none() => {
                    Decision { requeue_at: Some(at), ..self.running(job) }
                }
                _ => self.restart(job, why),
            };
        }
        self.running(job)
    }

    fn running(&self, job: &Job) -> Decision {
        let message = format!("The stream is currently running{}.", job_suffix(&job.uid));
        let status = Status::new(Phase::Running, self.stream, message);
        let actions = self.write_status(status, self.started(Phase::Running));
        Decision::of(actions)
    }

    /// Stops a Job so that the current configuration is started instead.
    pub(super) fn restart(&self, job: &Job, why: &str) -> Decision {
        let mut actions: Vec<Action> = stop(job, StopReason::Changed).into_iter().collect();
        if job.ended.is_none() {
            let status = Status::new(Phase::Pending, self.stream, ending(job));
            let why = format!("The stream {} is restarted: {why}", self.name());
            actions.extend(self.write_status(status, K8sEvent::normal("StreamRestarting", why)));
        }
        Decision::of(actions)
    }

    fn run_schedule(&self, schedule: &str, template: &NamespacedName) -> Decision {
        if let Some(job) = self.job() {
            return match stop(job, StopReason::Backend) {
                Some(stop) => Decision::of([stop]),
                None => self.wait(ending(job)),
            };
        }
        let Some(cron_job) = self.cron_job() else {
            return match self.job_inputs(template) {
                Ok(job_inputs) => match build::cron_job_manifest(&job_inputs, schedule) {
                    Ok(manifest) => Decision::of([Action::StartSchedule { manifest }]),
                    Err(why) => self.report_error("FailedCreateJob", why),
                },
                Err(why) => self.report_error("FailedCreateJob", why),
            };
        };
        if cron_job.deleting {
            return self.wait("Its CronJob is ending, then the new one is made.");
        }
        if self.schedule_changed(cron_job, schedule, template) {
            return Decision::of(stop_schedule(cron_job));
        }
        let last = match self.observed.last_run {
            Some((JobResult::Failed(why), at)) => {
                format!(" The run that ended at {at} failed: {why}")
            }
            Some((_, at)) => format!(" The run that ended at {at} succeeded."),
            None => String::new(),
        };
        let failed = matches!(self.observed.last_run, Some((JobResult::Failed(_), _)));
        let message = format!("The stream is scheduled: {}.{last}", cron_job.schedule);
        let mut status = Status::new(Phase::Scheduled, self.stream, message);
        status.error = failed;
        let event = if failed && self.stream.phase == Phase::Scheduled {
            K8sEvent::warning("ScheduledRunFailed", last.trim())
        } else {
            self.started(Phase::Scheduled)
        };
        Decision::of(self.write_status(status, event))
    }

    pub(super) fn no_backend(&self) -> Decision {
        let mut actions = Vec::new();
        actions.extend(self.job().and_then(|job| stop(job, StopReason::Backend)));
        actions.extend(self.cron_job().and_then(stop_schedule));
        let why = "spec.execution.streamingBackend has neither changeCapture nor batch: give one";
        let error = self.report_error("NoValidBackend", why);
        actions.extend(error.actions);
        Decision::of(actions)
    }

    pub(super) fn start(
        &self,
        template: &NamespacedName,
        mode: Mode,
        request: Option<&BackfillRequest>,
    ) -> Decision {
        let made = self
            .job_inputs(template)
            .and_then(|job_inputs| build::job_manifest(&job_inputs, &mode, request));
        match made {
            Ok(manifest) => {
                let mut actions = self.leave_failed();
                actions.push(Action::StartJob { mode, manifest });
                Decision::of(actions)
            }
            Err(why) => self.report_error("FailedCreateJob", why),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.stream.object_name().name
    }
}

/// Whether a restart was requested after the Job was created.
pub(super) fn restart_requested(stream: &Stream, made_with: Option<&str>) -> bool {
    let requested = stream.annotations.restart.as_deref();
    requested.is_some() && requested != made_with
}

pub(super) fn ending(job: &Job) -> String {
    format!("Waiting until Job {} has ended.", job.uid)
}

pub(super) fn stop(job: &Job, why: StopReason) -> Option<Action> {
    let running = job.ended.is_none();
    (!job.deleting).then(|| Action::StopJob { uid: job.uid.clone(), running, why })
}

pub(super) fn stop_schedule(cron_job: &CronJob) -> Option<Action> {
    (!cron_job.deleting).then(|| Action::StopSchedule { uid: cron_job.uid.clone() })
}
