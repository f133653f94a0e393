//! What keeps a stream from running: Jobs, templates, backfills, pods, schedules.

use jiff::tz::TimeZone;

use super::{Reason, StreamFacts, brief, cli_ref, distance, since};
use crate::model::backfill_request::BackfillRequest;
use crate::model::job::{Job, JobResult};
use crate::model::phase::Phase;
use crate::model::spec_layout::Backend;
use kernel::schedule::Cron;

/// Whether a Job of the stream's name has another owner.
pub(super) fn is_foreign(facts: &StreamFacts, job: &Job) -> bool {
    job.owner.as_ref().is_none_or(|owner| *owner.uid != *facts.stream.uid)
}

fn own_job(facts: &StreamFacts) -> Option<&Job> {
    facts.job.as_ref().filter(|job| !is_foreign(facts, job))
}

pub(super) fn foreign_job(facts: &StreamFacts) -> Option<Reason> {
    let job = facts.job.as_ref().filter(|job| is_foreign(facts, job))?;
    let whose = match (&job.owner, &job.kind) {
        (Some(owner), _) => format!("belongs to {} {}", owner.kind, owner.name),
        (None, Some(kind)) => format!("is of a {kind}"),
        (None, None) => "has no owner".into(),
    };
    Some(Reason::new(
        "name-taken",
        format!("A Job of its name exists and {whose}: a stream's Job has the stream's name."),
        "Rename one of the two, or delete that Job.",
    ))
}

pub(super) fn ending(facts: &StreamFacts) -> Option<Reason> {
    let job = own_job(facts).filter(|job| job.deleting)?;
    Some(Reason::new(
        "old-job-ending",
        format!(
            "It waits for its old Job (uid {}, created {}) to end before it starts another.",
            job.uid,
            distance(facts.now, job.created)
        ),
        "It continues automatically; a pod may take its termination grace period, and one on a lost \
         node needs a forced deletion.",
    ))
}

pub(super) fn failed(facts: &StreamFacts) -> Option<Reason> {
    let by_job = own_job(facts).and_then(Job::failed);
    if facts.stream.phase != Phase::Failed && by_job.is_none() {
        return None;
    }
    let of_event =
        facts.events.iter().find(|event| event.warning && event.reason.contains("Failed"));
    let status = facts.stream.status.as_deref().map(|status| &*status.message);
    let status = status.unwrap_or_default().trim_start_matches("The stream has failed");
    let status = status.trim_start_matches([':', '.', ' ']).trim_end_matches('.');
    let why = by_job.or(Some(status).filter(|text| !text.is_empty()));
    let why = why.or(of_event.map(|event| event.message.trim_end_matches('.')));
    let why = why.unwrap_or("the reason is unknown");
    let annotations = &facts.stream.annotations;
    let again = match (annotations.recover, &annotations.recovered) {
        (true, _) if why.contains("started again") => String::new(),
        (true, Some((times, at))) => {
            let ago = distance(facts.now, *at);
            format!(" It is restarted automatically: {times} consecutive failures, the last {ago}.")
        }
        (true, None) => " It is restarted automatically after a delay.".into(),
        (false, _) => " It stays failed until it is restarted.".into(),
    };
    let cli_ref = cli_ref(facts);
    Some(Reason::new(
        "failed",
        format!("Its Job failed: {why}.{again}"),
        format!("See `mainstay stream logs {cli_ref}`, then `mainstay stream restart {cli_ref}`."),
    ))
}

/// The error in the stream's status.
pub(super) fn operator_error(facts: &StreamFacts) -> Option<Reason> {
    let status = facts.stream.error_message()?;
    let field = status.split_whitespace().next().filter(|word| word.starts_with("spec."));
    let fix = match field {
        Some(field) => format!("Correct {field}; it is reconciled again at once."),
        None => "It is retried after a change, and automatically with growing delays.".into(),
    };
    let message = format!("The operator reports: {}.", status.trim_end_matches('.'));
    Some(Reason::new("refused", message, fix))
}

pub(super) fn templates(facts: &StreamFacts) -> Vec<Reason> {
    let wrong = facts.templates.iter().filter_map(|(object_name, problem)| {
        let problem = problem.as_deref()?;
        Some(match problem {
            "" => Reason::new(
                "template-missing",
                format!("The StreamingJobTemplate {object_name} that it names does not exist."),
                format!(
                    "Create it, or name another: `kubectl get sjt -n {}` lists the existing ones.",
                    object_name.namespace
                ),
            ),
            problem => Reason::new(
                "template-wrong",
                format!("The StreamingJobTemplate {object_name} cannot be used: {problem}."),
                "Correct the template; the stream is reconciled again when it changes.",
            ),
        })
    });
    wrong.collect()
}

pub(super) fn backfill(facts: &StreamFacts) -> Option<Reason> {
    let open: Vec<&BackfillRequest> =
        facts.requests.iter().filter(|request| !request.completed).collect();
    if let Some(job) = own_job(facts).filter(|job| job.backfilling && !job.deleting) {
        let by = job.backfill_id.as_deref().filter(|id| !id.is_empty());
        let by = by.map(|id| format!(" for the request {id}")).unwrap_or_default();
        let more = match open.len() {
            0 | 1 => String::new(),
            n => format!(" {} more requests wait for it.", n - 1),
        };
        match &job.ended {
            None => {}
            Some((JobResult::Complete, at)) => {
                let ago = distance(facts.now, *at);
                return Some(Reason::new(
                    "backfill-ended",
                    format!("Its backfill{by} succeeded {ago}; the operator continues."),
                    "If it does not within seconds, check that an operator runs.",
                ));
            }
            // Another reason reports the failure.
            Some(_) => return None,
        }
        return Some(Reason::new(
            "backfilling",
            format!("It backfills{by} {}.{more}", since(facts, job.created)),
            "It streams once the backfill has ended.",
        ));
    }
    let first = open.iter().min_by_key(|request| request.created)?;
    if facts.stream.phase == Phase::Failed || facts.job.as_ref().is_some_and(|job| job.deleting) {
        return None;
    }
    let asked = format!(
        "The request {} asked for a backfill {}",
        first.object_name.name,
        distance(facts.now, first.created)
    );
    let status = facts.stream.status.as_deref().map(|status| status.message.to_string());
    let capped = status.filter(|text| text.contains("backfills"));
    Some(match (capped, first.phase.as_str()) {
        (Some(message), _) => Reason::new(
            "backfill-cap",
            format!(
                "{asked}, but the limit of concurrent backfills is reached: {}.",
                message.trim_end_matches('.')
            ),
            "It starts when another has ended; the setting is operator.backfills-max.",
        ),
        (None, "Failed") => Reason::new(
            "request-refused",
            format!("{asked}, which cannot be carried out; see its conditions."),
            format!(
                "kubectl describe bfr {} -n {}",
                first.object_name.name, first.object_name.namespace
            ),
        ),
        // Another reason reports the error.
        (None, _) if facts.stream.error_message().is_some() => return None,
        (None, _) => Reason::new(
            "backfill-pending",
            format!("{asked}; its Job does not exist yet."),
            "The operator creates it; if it does not within seconds, check the events.",
        ),
    })
}

pub(super) fn stuck(facts: &StreamFacts) -> Option<Reason> {
    let (pod, why) = facts.stuck_pods.first()?;
    Some(Reason::new(
        "pod-waiting",
        format!("Its Job is there, but the pod {pod} makes no progress: {why}."),
        format!("kubectl describe pod {pod} -n {}", facts.stream.object_name().namespace),
    ))
}

pub(super) fn schedule(facts: &StreamFacts) -> Option<Reason> {
    let execution = facts.stream.execution.as_ref().ok()?;
    let Some(Backend::Batch { schedule, .. }) = &execution.backend else { return None };
    let next = match Cron::parse(schedule) {
        // Kubernetes uses the time zone of its controllers, which is nearly always UTC.
        Ok(parsed) => match parsed.next(facts.now, &TimeZone::UTC) {
            Some(at) => format!("the next run is {} ({}, UTC)", brief(at), distance(facts.now, at)),
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
    let Some(cron_job) = &facts.cron_job else {
        return Some(Reason::new(
            "schedule-pending",
            format!("It runs by the schedule {schedule:?}, but its CronJob does not exist yet."),
            "The operator creates it; if it does not within seconds, check the events.",
        ));
    };
    let ran = match (cron_job.last_run, cron_job.last_success) {
        (None, _) => "it has not run yet".into(),
        (Some(run), Some(success)) if success >= run => {
            format!("the last run was {}, and succeeded", distance(facts.now, run))
        }
        (Some(run), Some(success)) => format!(
            "the last run was {}, the last success {}",
            distance(facts.now, run),
            distance(facts.now, success)
        ),
        (Some(run), None) => {
            format!("the last run was {}, and none has succeeded", distance(facts.now, run))
        }
    };
    Some(Reason::new(
        "scheduled",
        format!("It runs by the schedule {schedule:?}: {ran}; {next}."),
        "",
    ))
}

pub(super) fn running(facts: &StreamFacts) -> Option<Reason> {
    let job = own_job(facts).filter(|job| !job.deleting)?;
    if job.backfilling
        || job.ended.is_some()
        || facts.suspended.is_some()
        || !facts.stuck_pods.is_empty()
    {
        return None;
    }
    let message = format!("It runs {}.", since(facts, job.created));
    Some(Reason::new("running", message, ""))
}

pub(super) fn nothing_known(facts: &StreamFacts) -> Reason {
    let message = facts.stream.status.as_deref().map(|status| status.message.to_string());
    match (facts.stream.phase, message.filter(|text| !text.is_empty())) {
        (Phase::New, _) => Reason::new(
            "new",
            "No operator has reconciled it yet.",
            "A running operator with permission to read this kind does within a second.",
        ),
        (_, Some(message)) => Reason::new(
            "waiting",
            format!("Its Job does not exist. The operator reports: {message}"),
            "If nothing changes within seconds, check the events.",
        ),
        (_, None) => Reason::new(
            "waiting",
            "Its Job does not exist.",
            "The operator creates it; if it does not within seconds, check the events.",
        ),
    }
}
