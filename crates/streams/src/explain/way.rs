//! What is between a stream and its running: Jobs, templates, backfills, pods, schedules.

use jiff::tz::TimeZone;

use super::{Reason, Seen, brief, distance, me, since};
use crate::model::job::{Fate, Job};
use crate::model::layout::Backend;
use crate::model::phase::Phase;
use crate::model::request::Request;
use crate::schedule::Schedule;

/// Whether a Job of its name is someone else's.
pub(super) fn is_foreign(seen: &Seen, job: &Job) -> bool {
    job.owner.as_ref().is_none_or(|owner| *owner.uid != *seen.stream.uid)
}

pub(super) fn foreign_job(seen: &Seen) -> Option<Reason> {
    let job = seen.job.as_ref().filter(|job| is_foreign(seen, job))?;
    let whose = match (&job.owner, &job.kind) {
        (Some(owner), _) => format!("belongs to {} {}", owner.kind, owner.name),
        (None, Some(kind)) => format!("is of a {kind}"),
        (None, None) => "belongs to nobody".into(),
    };
    Some(Reason::new(
        "name-taken",
        format!("A Job of its name is there and {whose}: a stream's Job has the stream's name."),
        "Give one of the two another name, or remove that Job.",
    ))
}

pub(super) fn ending(seen: &Seen) -> Option<Reason> {
    let job = seen.job.as_ref().filter(|job| job.deleting && !is_foreign(seen, job))?;
    Some(Reason::new(
        "old-job-ending",
        format!(
            "It waits for its old Job (uid {}, made {}) to end before it starts another.",
            job.uid,
            distance(seen.now, job.created)
        ),
        "It goes on by itself; a pod may take its termination grace period, and one on a lost node \
         needs a forced deletion.",
    ))
}

pub(super) fn failed(seen: &Seen) -> Option<Reason> {
    let by_job = seen.job.as_ref().filter(|job| !is_foreign(seen, job)).and_then(Job::failed);
    if seen.stream.phase != Phase::Failed && by_job.is_none() {
        return None;
    }
    let of_event =
        seen.events.iter().find(|event| event.warning && event.reason.contains("Failed"));
    let written = seen.stream.written.as_deref().map(|written| &*written.message);
    let written = written.unwrap_or_default().trim_start_matches("The stream has failed");
    let written = written.trim_start_matches([':', '.', ' ']).trim_end_matches('.');
    let why = by_job.or(Some(written).filter(|text| !text.is_empty()));
    let why = why.or(of_event.map(|event| event.message.trim_end_matches('.')));
    let why = why.unwrap_or("nothing says why");
    let wishes = &seen.stream.wishes;
    let again = match (wishes.recover, &wishes.recovered) {
        (true, _) if why.contains("started again") => String::new(),
        (true, Some((times, at))) => {
            let ago = distance(seen.now, *at);
            format!(" It is started again by itself: {times} failures so far, the last {ago}.")
        }
        (true, None) => " It is started again by itself after a while.".into(),
        (false, _) => " It stays so until someone acts.".into(),
    };
    let me = me(seen);
    Some(Reason::new(
        "failed",
        format!("Its Job failed: {why}.{again}"),
        format!("See `mainstay stream logs {me}`, then `mainstay stream restart {me}`."),
    ))
}

/// What the operator says is in the way.
pub(super) fn trouble(seen: &Seen) -> Option<Reason> {
    let written = seen.stream.trouble()?;
    let field = written.split_whitespace().next().filter(|word| word.starts_with("spec."));
    let change = match field {
        Some(field) => format!("Correct {field}; it is looked at again at once."),
        None => "It is tried again when something of it changes, and by itself, ever more slowly."
            .into(),
    };
    let says = format!("The operator says: {}.", written.trim_end_matches('.'));
    Some(Reason::new("refused", says, change))
}

pub(super) fn templates(seen: &Seen) -> Vec<Reason> {
    let wrong = seen.templates.iter().filter_map(|(place, problem)| {
        let problem = problem.as_deref()?;
        Some(match problem {
            "" => Reason::new(
                "template-missing",
                format!("The StreamingJobTemplate {place} that it names does not exist."),
                format!(
                    "Make it, or name another: `kubectl get sjt -n {}` lists those there are.",
                    place.namespace
                ),
            ),
            problem => Reason::new(
                "template-wrong",
                format!("The StreamingJobTemplate {place} cannot be used: {problem}."),
                "Correct the template; the stream is looked at again when it changes.",
            ),
        })
    });
    wrong.collect()
}

pub(super) fn backfill(seen: &Seen) -> Option<Reason> {
    let open: Vec<&Request> = seen.requests.iter().filter(|request| !request.completed).collect();
    let job =
        seen.job.as_ref().filter(|job| job.backfilling && !job.deleting && !is_foreign(seen, job));
    if let Some(job) = job {
        let by = job.backfill_id.as_deref().filter(|id| !id.is_empty());
        let by = by.map(|id| format!(" for the request {id}")).unwrap_or_default();
        let more = match open.len() {
            0 | 1 => String::new(),
            n => format!(" {} more requests wait for it.", n - 1),
        };
        match &job.ended {
            None => {}
            Some((Fate::Complete, at)) => {
                let ago = distance(seen.now, *at);
                return Some(Reason::new(
                    "backfill-ended",
                    format!("Its backfill{by} ended well {ago}; the operator is to go on."),
                    "If it does not within seconds, see whether one runs.",
                ));
            }
            // That it failed is said already.
            Some(_) => return None,
        }
        return Some(Reason::new(
            "backfilling",
            format!("It backfills{by} {}.{more}", since(seen, job.created)),
            "It streams once the backfill has ended.",
        ));
    }
    let first = open.iter().min_by_key(|request| request.created)?;
    if seen.stream.phase == Phase::Failed || seen.job.as_ref().is_some_and(|job| job.deleting) {
        return None;
    }
    let asked = format!(
        "The request {} asked for a backfill {}",
        first.place.name,
        distance(seen.now, first.created)
    );
    let written = seen.stream.written.as_deref().map(|written| written.message.to_string());
    let capped = written.filter(|text| text.contains("backfills"));
    Some(match (capped, first.phase.as_str()) {
        (Some(message), _) => Reason::new(
            "backfill-cap",
            format!("{asked}, but as many run as may at once: {}.", message.trim_end_matches('.')),
            "It begins when another has ended; the operator's setting says how many may run.",
        ),
        (None, "Failed") => Reason::new(
            "request-refused",
            format!("{asked}, which cannot be carried out; its conditions say why."),
            format!("kubectl describe bfr {} -n {}", first.place.name, first.place.namespace),
        ),
        // Why is said already.
        (None, _) if seen.stream.trouble().is_some() => return None,
        (None, _) => Reason::new(
            "backfill-pending",
            format!("{asked}; its Job is not there yet."),
            "The operator makes it; if it does not within seconds, look at the events.",
        ),
    })
}

pub(super) fn stuck(seen: &Seen) -> Option<Reason> {
    let (pod, why) = seen.stuck_pods.first()?;
    Some(Reason::new(
        "pod-waiting",
        format!("Its Job is there, but the pod {pod} does not get ahead: {why}."),
        format!("kubectl describe pod {pod} -n {}", seen.stream.place().namespace),
    ))
}

pub(super) fn schedule(seen: &Seen) -> Option<Reason> {
    let execution = seen.stream.execution.as_ref().ok()?;
    let Some(Backend::Batch { schedule, .. }) = &execution.backend else { return None };
    let next = match Schedule::parse(schedule) {
        // Kubernetes goes by the time of its controllers, which is UTC nearly everywhere.
        Ok(parsed) => match parsed.next(seen.now, &TimeZone::UTC) {
            Some(at) => format!("the next run is {} ({}, UTC)", brief(at), distance(seen.now, at)),
            None => "it is never due".into(),
        },
        Err(_) if schedule.starts_with("@every") => "the next run follows the last".into(),
        Err(wrong) => {
            return Some(Reason::new(
                "schedule-wrong",
                format!("Its schedule {schedule:?} cannot be read: {wrong}."),
                "Correct spec.execution.streamingBackend.batch.schedule.",
            ));
        }
    };
    let Some(cron) = &seen.cron else {
        return Some(Reason::new(
            "schedule-pending",
            format!("It runs by the schedule {schedule:?}, but its CronJob is not there yet."),
            "The operator makes it; if it does not within seconds, look at the events.",
        ));
    };
    let ran = match (cron.last_run, cron.last_success) {
        (None, _) => "it has not run yet".into(),
        (Some(run), Some(success)) if success >= run => {
            format!("the last run was {}, and ended well", distance(seen.now, run))
        }
        (Some(run), Some(success)) => format!(
            "the last run was {}, the last that ended well {}",
            distance(seen.now, run),
            distance(seen.now, success)
        ),
        (Some(run), None) => {
            format!("the last run was {}, and none has ended well", distance(seen.now, run))
        }
    };
    Some(Reason::new(
        "scheduled",
        format!("It runs by the schedule {schedule:?}: {ran}; {next}."),
        "",
    ))
}

pub(super) fn running(seen: &Seen) -> Option<Reason> {
    let job = seen.job.as_ref().filter(|job| !is_foreign(seen, job) && !job.deleting)?;
    if job.backfilling
        || job.ended.is_some()
        || seen.suspended.is_some()
        || !seen.stuck_pods.is_empty()
    {
        return None;
    }
    let says = format!("It runs {}.", since(seen, job.created));
    Some(Reason::new("running", says, ""))
}

pub(super) fn nothing_known(seen: &Seen) -> Reason {
    let message = seen.stream.written.as_deref().map(|written| written.message.to_string());
    match (seen.stream.phase, message.filter(|text| !text.is_empty())) {
        (Phase::New, _) => Reason::new(
            "new",
            "No operator has looked at it yet.",
            "One does within a second if it runs, and if it may read this kind.",
        ),
        (_, Some(message)) => Reason::new(
            "waiting",
            format!("Its Job is not there. The operator says: {message}"),
            "If nothing changes within seconds, look at the events.",
        ),
        (_, None) => Reason::new(
            "waiting",
            "Its Job is not there.",
            "The operator makes it; if it does not within seconds, look at the events.",
        ),
    }
}
