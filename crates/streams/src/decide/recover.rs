//! Streams that failed: they stay so until someone suspends them, or are started again, later each
//! time, if they ask for that.

use jiff::{SignedDuration, Timestamp};

use super::command::{Command, Decision, Happened, Why};
use super::stream::{View, stop};
use crate::model::job::Job;
use crate::model::meta::seconds;
use crate::model::phase::Phase;
use crate::model::settings::Recovery;
use crate::model::status::Status;
use crate::model::{Line, RECOVERED, STATE};

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
        return Next::Stay(failed(view, why, job.and_then(|job| stop(job, Why::Failed))));
    }
    match (job, restart(view)) {
        (None, next) => next,
        // Nothing says that this one failed, and the stream may run.
        (Some(job), Next::Start) if job.failed().is_none() && !job.deleting => Next::Start,
        (Some(job), _) => Next::Stay(Decision::of(stop(job, Why::Failed))),
    }
}

/// Whether a failed stream may be started again, whatever is left of its Job.
fn restart(view: &View<'_>) -> Next {
    if view.class.line == Line::Beta {
        // Whoever removes the annotation starts the stream.
        return if view.crash_looped() { Next::Stay(Decision::default()) } else { Next::Start };
    }
    if !view.stream.wishes.recover {
        return Next::Stay(Decision::default());
    }
    let Some((failures, at)) = view.stream.wishes.recovered else {
        return Next::Stay(Decision::of([note(1, view.now)]));
    };
    let recovery = &view.index.settings.recovery;
    if failures > recovery.attempts {
        return Next::Stay(Decision::default());
    }
    let due = due(recovery, failures, at);
    if due <= view.now {
        Next::Start
    } else {
        Next::Stay(Decision { look_at: Some(due), ..Decision::default() })
    }
}

/// A Job has failed: that is written down first, so that a crash can not lose it, and then the Job
/// is removed.
pub(super) fn failed(view: &View<'_>, why: &str, stop: Option<Command>) -> Decision {
    let mut commands = Vec::new();
    let mut look_at = None;
    let mut then = String::new();
    if view.class.line == Line::Beta && view.state() != Some("crash-loop") {
        commands.push(Command::Annotate { name: STATE, value: Some("crash-loop".into()) });
    }
    if view.stream.wishes.recover && view.class.line == Line::V1 {
        let recovery = &view.index.settings.recovery;
        let (failures, at) = counted(view).unwrap_or_else(|| {
            let failures = failures(view, recovery);
            commands.push(note(failures, view.now));
            (failures, view.now)
        });
        let due = due(recovery, failures, at);
        then = match failures > recovery.attempts {
            true => format!(" It failed {failures} times, so it is not started again by itself."),
            false => format!(" It is started again at {}.", seconds(due)),
        };
        look_at = (failures <= recovery.attempts).then_some(due);
    }
    let message = format!("The stream has failed: {why}.{then}");
    let status = Status::new(Phase::Failed, view.stream, message);
    let what = match view.stream.phase {
        Phase::Backfilling => "backfill",
        _ => "streaming",
    };
    let told = format!("The {what} job {} has failed: {why}.{then}", view.name());
    commands.extend(view.say(status, Happened::warning("StreamingJobFailed", told)));
    commands.extend(stop);
    Decision { commands, look_at, ..Decision::default() }
}

/// The count that includes this failure, if it was noted before and the status could not be
/// written after it.
fn counted(view: &View<'_>) -> Option<(u32, Timestamp)> {
    let (_, noted) = view.stream.wishes.recovered?;
    let job = view.job()?;
    let (_, ended) = job.ended.as_ref()?;
    view.stream.wishes.recovered.filter(|_| job.created < noted && *ended <= noted)
}

/// How often it has failed in a row, with this time.
fn failures(view: &View<'_>, recovery: &Recovery) -> u32 {
    let Some((before, at)) = view.stream.wishes.recovered else { return 1 };
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

fn note(failures: u32, at: Timestamp) -> Command {
    let value = Some(format!("{failures} {}", seconds(at)));
    Command::Annotate { name: RECOVERED, value }
}
