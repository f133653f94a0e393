//! Failed streams: they stay failed until they are suspended, or are restarted with growing delays
//! if they have the annotation `mainstay.io/recover`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kernel::Backoff;

use super::action::{Action, Decision, K8sEvent, StopReason};
use super::stream::{View, stop};
use crate::model::job::Job;
use crate::model::meta::seconds;
use crate::model::phase::Phase;
use crate::model::settings::Recovery;
use crate::model::status::Status;
use crate::model::{CrdVersion, RECOVERED, STATE};

pub(super) enum Next {
    Start,
    Stay(Decision),
}

/// Decides whether a failed stream is restarted now. A Job that failed is deleted. The Job of a
/// restart cannot be mistaken for it: the phase is no longer Failed when it is created (see
/// [`View::leave_failed`]).
pub(super) fn after_failure(view: &View<'_>) -> Next {
    let job = view.job();
    if view.crash_looped() && view.stream.phase != Phase::Failed {
        let why = job.and_then(Job::failed).unwrap_or("its Job failed before");
        return Next::Stay(failed(view, why, job.and_then(|job| stop(job, StopReason::Failed))));
    }
    match (job, restart(view)) {
        (None, next) => next,
        // The Job has not failed and the stream may run, so it is kept.
        (Some(job), Next::Start) if job.failed().is_none() && !job.deleting => Next::Start,
        (Some(job), _) => Next::Stay(Decision::of(stop(job, StopReason::Failed))),
    }
}

/// Whether a failed stream may be restarted, apart from any Job that is left.
fn restart(view: &View<'_>) -> Next {
    if view.class.crd_version == CrdVersion::V1Beta1 {
        // Removing the annotation restarts the stream.
        return if view.crash_looped() { Next::Stay(Decision::default()) } else { Next::Start };
    }
    if !view.stream.annotations.recover {
        return Next::Stay(Decision::default());
    }
    let Some((failures, at)) = view.stream.annotations.recovered else {
        return Next::Stay(Decision::of([failure_count(1, view.now)]));
    };
    let recovery = &view.observed.settings.recovery;
    if failures > recovery.attempts {
        return Next::Stay(Decision::default());
    }
    let due = due(recovery, failures, at);
    if due <= view.now {
        Next::Start
    } else {
        Next::Stay(Decision { requeue_at: Some(due), ..Decision::default() })
    }
}

/// Records the failure of a Job before the Job is deleted, so that a crash cannot lose it.
pub(super) fn failed(view: &View<'_>, why: &str, stop: Option<Action>) -> Decision {
    let mut actions = Vec::new();
    let mut requeue_at = None;
    let mut then = String::new();
    if view.class.crd_version == CrdVersion::V1Beta1 && view.state() != Some("crash-loop") {
        actions.push(Action::Annotate { name: STATE, value: Some("crash-loop".into()) });
    }
    if view.stream.annotations.recover && view.class.crd_version == CrdVersion::V1 {
        let recovery = &view.observed.settings.recovery;
        let (failures, at) = noted_failure(view).unwrap_or_else(|| {
            let failures = failures(view, recovery);
            actions.push(failure_count(failures, view.now));
            (failures, view.now)
        });
        let due = due(recovery, failures, at);
        then = if failures > recovery.attempts {
            format!(" It failed {failures} times, so it is not started again by itself.")
        } else {
            format!(" It is started again at {}.", seconds(due))
        };
        requeue_at = (failures <= recovery.attempts).then_some(due);
    }
    let status = format!("The stream has failed: {why}.{then}");
    let status = Status::new(Phase::Failed, view.stream, status);
    let what = match view.stream.phase {
        Phase::Backfilling => "backfill",
        _ => "streaming",
    };
    let message = format!("The {what} job {} has failed: {why}.{then}", view.name());
    actions.extend(view.write_status(status, K8sEvent::warning("StreamingJobFailed", message)));
    actions.extend(stop);
    Decision { actions, requeue_at, ..Decision::default() }
}

/// The recorded count of failures, if it includes this one already: the operator crashed, or the
/// status could not be written, after the count was.
fn noted_failure(view: &View<'_>) -> Option<(u32, Timestamp)> {
    let (_, noted) = view.stream.annotations.recovered?;
    let job = view.job()?;
    let (_, ended) = job.ended.as_ref()?;
    view.stream.annotations.recovered.filter(|_| job.created < noted && *ended <= noted)
}

/// The number of consecutive failures, including this one.
fn failures(view: &View<'_>, recovery: &Recovery) -> u32 {
    let Some((before, at)) = view.stream.annotations.recovered else { return 1 };
    let stable = SignedDuration::from_secs(recovery.stable_s.try_into().unwrap_or(i64::MAX));
    let ran = view.job().map(|job| {
        let ended = job.ended.as_ref().map_or(view.now, |(_, at)| *at);
        ended.duration_since(job.created)
    });
    if ran.unwrap_or_else(|| view.now.duration_since(at)) > stable {
        1
    } else {
        before.saturating_add(1)
    }
}

fn due(recovery: &Recovery, failures: u32, at: Timestamp) -> Timestamp {
    let seconds = Duration::from_secs;
    let (first, longest) = (seconds(recovery.first_s), seconds(recovery.longest_s));
    let wait = Backoff { first, longest }.without_jitter(failures.saturating_sub(1));
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn failure_count(failures: u32, at: Timestamp) -> Action {
    let value = Some(format!("{failures} {}", seconds(at)));
    Action::Annotate { name: RECOVERED, value }
}
