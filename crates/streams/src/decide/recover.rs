//! Streams that failed: they stay so until someone suspends them, or are started again, later each
//! time, if they ask for that.

use jiff::{SignedDuration, Timestamp};

use super::command::{Command, Decision, Happened, Why};
use super::stream::{View, stop};
use crate::model::meta::seconds;
use crate::model::phase::Phase;
use crate::model::settings::Recovery;
use crate::model::status::Status;
use crate::model::{Line, RECOVERED, STATE};

pub(super) enum Next {
    Start,
    Stay(Decision),
}

/// What a failed stream does now.
pub(super) fn after_failure(view: &View<'_>) -> Next {
    if let Some(job) = view.job() {
        return Next::Stay(Decision::of(stop(job, Why::Failed)));
    }
    if view.class.line == Line::Beta {
        return match view.state() {
            Some("crash-loop") if view.stream.phase != Phase::Failed => {
                Next::Stay(failed(view, "its Job failed before", None))
            }
            Some("crash-loop") => Next::Stay(Decision::default()),
            _ => Next::Start,
        };
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
    match due <= view.now {
        true => Next::Start,
        false => Next::Stay(Decision { look_at: Some(due), ..Decision::default() }),
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
        let failures = failures(view, recovery);
        commands.push(note(failures, view.now));
        let due = due(recovery, failures, view.now);
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
