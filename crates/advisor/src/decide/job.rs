//! What to do next about a bulk job.

use std::time::Duration;

use kernel::typed::Typed;
use kernel::{Key, Timestamp};

use crate::model::job::{
    BulkJob, BulkShard, JobNotice, JobPhase, JobStatus, ShardPhase, ShardStatus, shard_key,
};
use crate::model::notification::Notification;

/// A commit stays short: each shard comes with a blob of some kilobytes.
const SHARDS_AT_ONCE: usize = 50;

/// The settings that matter here.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of a whole job.
    pub timeout: Duration,
    /// How long a job that has ended is kept.
    pub keep: Duration,
}

/// The next step of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Take one of the places for jobs of the organisation.
    Enter,
    Discover,
    /// Create the shards of these numbers.
    Create(Vec<usize>),
    /// Stop the shards of these numbers, which have not ended.
    Stop(Vec<usize>),
    /// Write how far it is.
    Report(JobStatus),
    /// Write down why it fails, which is published before its end.
    Fail(JobStatus),
    End(JobPhase, JobStatus),
    /// Send to its webhook that it has ended.
    Notify(Notification),
    /// Remove the shards of these numbers; the job itself if there are none.
    Remove(Vec<usize>),
    /// Wait for the shards, at the latest until then.
    Wait(Timestamp),
}

/// `shards` are those that exist and were not deleted, by their numbers.
pub fn next(
    job: &Typed<BulkJob>,
    shards: &[(usize, Typed<BulkShard>)],
    limits: Limits,
    now: Timestamp,
) -> Next {
    let status = &job.status;
    if job.phase.is_final() {
        let ended = status.ended_at.unwrap_or(job.updated_at);
        let until = ended.plus(limits.keep);
        if !job.spec.deleted && now < until {
            let notification = status.webhook.as_ref().filter(|one| one.next().is_some());
            return match notification {
                Some(due) if due.due <= now => Next::Notify(due.clone()),
                Some(due) => Next::Wait(until.min(due.due)),
                None => Next::Wait(until),
            };
        }
        return Next::Remove(first(shards.iter().map(|(number, _)| *number)));
    }
    // One that waits for its place has all of its time before it.
    let deadline = status.entered_at.unwrap_or(now).plus(limits.timeout);
    let stopped = match () {
        () if status.failing => Some((JobPhase::Failed, None)),
        () if job.spec.cancelled => Some((JobPhase::Cancelled, Some(cancelled()))),
        () if now >= deadline => {
            return Next::Fail(failing(status, timed_out(limits.timeout)));
        }
        () => None,
    };
    let running = shards.iter().filter(|(_, shard)| !shard.phase.is_final());
    let running = first(running.map(|(number, _)| *number));
    let counted = counted(status, shards);
    if let Some((phase, notice)) = stopped {
        return if running.is_empty() {
            Next::End(phase, ended(job, counted, notice, now))
        } else {
            Next::Stop(running)
        };
    }
    match job.phase {
        JobPhase::Queued => return Next::Enter,
        JobPhase::Discovering => return Next::Discover,
        _ => {}
    }
    let exists = |number: &usize| shards.binary_search_by_key(number, |(n, _)| *n).is_ok();
    let missing = first((0..status.shards as usize).filter(|number| !exists(number)));
    match () {
        () if !missing.is_empty() => Next::Create(missing),
        () if running.is_empty() => {
            Next::End(JobPhase::Completed, ended(job, counted, failures(shards), now))
        }
        () if counted != *status => Next::Report(counted),
        () => Next::Wait(deadline),
    }
}

fn first(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    numbers.take(SHARDS_AT_ONCE).collect()
}

/// The keys of all shards that a job has been split into.
pub fn shard_keys(job: &Typed<BulkJob>) -> Vec<Key> {
    (0..job.status.shards as usize).map(|number| shard_key(&job.id, number)).collect()
}

/// How far the shards are.
fn counted(before: &JobStatus, shards: &[(usize, Typed<BulkShard>)]) -> JobStatus {
    let sum = |of: fn(&ShardStatus) -> u32| -> u32 {
        let ended = shards.iter().filter(|(_, shard)| shard.phase.is_final());
        ended.map(|(_, shard)| of(&shard.status)).sum()
    };
    JobStatus {
        processed: before.processed.max(sum(|status| status.processed)),
        failed: before.failed.max(sum(|status| status.failed)),
        existing: before.existing.max(sum(|status| status.existing)),
        ..before.clone()
    }
}

fn with(status: &JobStatus, notice: Option<JobNotice>) -> JobStatus {
    let notices = status.notices.iter().cloned().chain(notice).collect();
    JobStatus { notices, ..status.clone() }
}

/// The status of a job that is going to fail.
pub fn failing(status: &JobStatus, notice: JobNotice) -> JobStatus {
    JobStatus { failing: true, ..with(status, Some(notice)) }
}

fn ended(
    job: &Typed<BulkJob>,
    counted: JobStatus,
    notice: Option<JobNotice>,
    now: Timestamp,
) -> JobStatus {
    let webhook = job.spec.request.webhook_url().map(|_| Notification::due(now));
    JobStatus { ended_at: Some(now), webhook, ..with(&counted, notice) }
}

/// The job says that some of its containers failed, and the first reason.
fn failures(shards: &[(usize, Typed<BulkShard>)]) -> Option<JobNotice> {
    let why = shards.iter().find_map(|(_, shard)| shard.status.error.as_deref())?;
    Some(JobNotice::error(503, 503, format!("Not able to proceed due to. ({why})")))
}

fn cancelled() -> JobNotice {
    JobNotice::info(499, 499, "The job was cancelled.")
}

fn timed_out(timeout: Duration) -> JobNotice {
    let hours = timeout.as_secs_f64() / 3600.0;
    let why = format!("The job did not end within {hours} hours (advisor.job_timeout_s).");
    JobNotice::error(504, 504, why)
}

/// Whether a shard goes on, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextOfShard {
    /// Take one of the places for readers of the data source.
    Enter,
    Read,
    Nothing,
}

pub fn next_of_shard(shard: &Typed<BulkShard>) -> NextOfShard {
    match shard.phase {
        ShardPhase::Waiting => NextOfShard::Enter,
        ShardPhase::Reading => NextOfShard::Read,
        ShardPhase::Done | ShardPhase::Failed | ShardPhase::Cancelled => NextOfShard::Nothing,
    }
}
