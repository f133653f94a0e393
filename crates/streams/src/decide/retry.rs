//! Streams that failed: they stay so until someone suspends them, or are started again, later each
//! time, if they ask for that.

use jiff::{SignedDuration, Timestamp};

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

/// Decides whether a failed stream is started again now. A Job that failed is removed; the Job of
/// a restart is not mistaken for it, because the phase is no longer Failed when that is created
/// (see [`View::leave_failed`]).
pub(super) fn after_failure(view: &View<'_>) -> Next {
    let job = view.job();
    if view.crash_looped() && view.stream.phase != Phase::Failed {
        let why = job.and_then(Job::failed).unwrap_or("its Job failed before");
        return Next::Stay(failed(view, why, job.and_then(|job| stop(job, StopReason::Failed))));
    }
    match (job, restart(view)) {
        (None, next) => next,
        // Nothing says that this one failed, and the stream may run.
        (Some(job), Next::Start) if job.failed().is_none() && !job.deleting => Next::Start,
        (Some(job), _) => Next::Stay(Decision::of(stop(job, StopReason::Failed))),
    }
}

/// Whether a failed stream may be started again, whatever is left of its Job.
fn restart(view: &View<'_>) -> Next {
    if view.class.crd_version == CrdVersion::V1Beta1 {
        // Whoever removes the annotation starts the stream.
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

/// A Job has failed: that is written down first, so that a crash can not lose it, and then the Job
/// is removed.
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
        then = match failures > recovery.attempts {
            true => format!(" It failed {failures} times, so it is not started again by itself."),
            false => format!(" It is started again at {}.", seconds(due)),
        };
        requeue_at = (failures <= recovery.attempts).then_some(due);
    }
    let message = format!("The stream has failed: {why}.{then}");
    let status = Status::new(Phase::Failed, view.stream, message);
    let what = match view.stream.phase {
        Phase::Backfilling => "backfill",
        _ => "streaming",
    };
    let told = format!("The {what} job {} has failed: {why}.{then}", view.name());
    actions.extend(view.write_status(status, K8sEvent::warning("StreamingJobFailed", told)));
    actions.extend(stop);
    Decision { actions, requeue_at, ..Decision::default() }
}

/// The count that includes this failure, if it was noted before and the status could not be
/// written after it.
fn noted_failure(view: &View<'_>) -> Option<(u32, Timestamp)> {
    let (_, noted) = view.stream.annotations.recovered?;
    let job = view.job()?;
    let (_, ended) = job.ended.as_ref()?;
    view.stream.annotations.recovered.filter(|_| job.created < noted && *ended <= noted)
}

/// How often it has failed in a row, with this time.
fn failures(view: &View<'_>, recovery: &Recovery) -> u32 {
    let Some((before, at)) = view.stream.annotations.recovered else { return 1 };
    let stable = SignedDuration::from_secs(recovery.stable_s.try_into().unwrap_or(i64::MAX));
    let ran = view.job().map(|job| {
        let ended = job.ended.as_ref().map_or(view.now, |(_, at)| *at);
        ended.duration_since(job.created)
    });
    match ran.unwrap_or_else(|| view.now.duration_since(at)) > stable {
        true => 1,
        false => before.saturating_add(1),
    }
}

fn due(recovery: &Recovery, failures: u32, at: Timestamp) -> Timestamp {
    let doubled = recovery.first_s.saturating_mul(1 << failures.saturating_sub(1).min(30));
    let wait = i64::try_from(doubled.min(recovery.longest_s)).unwrap_or(i64::MAX);
    at.checked_add(SignedDuration::from_secs(wait)).unwrap_or(Timestamp::MAX)
}

fn failure_count(failures: u32, at: Timestamp) -> Action {
    let value = Some(format!("{failures} {}", seconds(at)));
    Action::Annotate { name: RECOVERED, value }
}
