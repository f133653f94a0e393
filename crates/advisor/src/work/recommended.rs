//! Writes a result into its experiment.

use kernel::change::Write;
use kernel::{Change, Draft, Key, Object, Result, Timestamp};

use crate::decide::material::is_material;
use crate::model::experiment::{
    Answer, Experiment, ExperimentPhase, ExperimentStatus, Figures, HISTORY_MAX, REQUESTS_MAX,
    Request,
};
use crate::model::job::{ResultLine, ResultRef};
use crate::store;

/// Whose a new experiment is, and when its job found it.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub org: &'a str,
    pub owner: &'a str,
    /// An experiment that was deleted since stays deleted.
    pub found_at: Timestamp,
}

/// The change that writes a result of a job into its experiment, which is created if it does not
/// exist. None if the experiment has the result already, or was deleted after the job found it.
pub fn change(
    before: Option<&Object>,
    key: Key,
    owner: Owner<'_>,
    line: ResultLine<'_>,
    result: ResultRef,
    job: Option<&str>,
    now: Timestamp,
) -> Result<Option<Change>> {
    let deleted_at = before.and_then(|object| object.deleted_at);
    if deleted_at.is_some_and(|at| at >= owner.found_at) {
        return Ok(None);
    }
    let existing = before.filter(|_| deleted_at.is_none()).map(store::experiment).transpose()?;
    let earlier = existing.as_ref().map(|found| found.status.clone()).unwrap_or_default();
    if earlier.knows(&result) {
        return Ok(None);
    }
    let (phase, event) = outcome(&line, earlier.figures.as_ref());
    let status = status(earlier, &line, result, job);
    let name = &line.experiment.name;
    let write = match (before, existing) {
        (Some(object), Some(existing)) => {
            // The settings may have been changed since the line was made.
            let spec = Experiment { objects: line.experiment.objects.clone(), ..existing.spec };
            let labels = spec.labels();
            let draft = Draft::of(object).phase(&phase).spec(&spec).labels(labels).status(&status);
            draft.transition(event, now)
        }
        (before, _) => {
            let draft = match before {
                // It exists again.
                Some(object) => Draft::of(object).owner(owner.owner).mirror(object.generation + 1),
                None => Draft::new(key, owner.org, owner.owner, name, now),
            };
            let draft = draft.labels(line.experiment.labels()).spec(&line.experiment);
            draft.phase(&phase).status(&status).transition(event, now)
        }
    };
    Ok(Some(Change::from(write)))
}

/// The write that answers requests with a result. The requests are the first of those that wait.
pub fn answer(
    object: &Object,
    line: &ResultLine<'_>,
    result: ResultRef,
    requests: &[Request],
    now: Timestamp,
) -> Result<Write> {
    let before = store::experiment(object)?;
    let (phase, event) = outcome(line, before.status.figures.as_ref());
    let job = requests.first().and_then(|request| request.job.as_deref());
    let mut status = status(before.status, line, result.clone(), job);
    let answer = |request: &Request| Answer { request: request.number, result: result.clone() };
    status.answers.extend(requests.iter().map(answer));
    let surplus = status.answers.len().saturating_sub(REQUESTS_MAX);
    status.answers.drain(..surplus);
    let all_answered = before.spec.pending(&status).is_empty();
    let draft = Draft::<Experiment>::of(object).phase(&phase).status(&status);
    Ok(if all_answered { draft.transition(event, now) } else { draft.report(event, now) })
}

/// The phase that a result leads to, and its event.
fn outcome(line: &ResultLine<'_>, known: Option<&Figures>) -> (ExperimentPhase, &'static str) {
    match (&line.figures, known) {
        (None, _) => (ExperimentPhase::Failed, "failed"),
        (Some(after), Some(before)) if is_material(before, after) => {
            (ExperimentPhase::Recommended, "changed")
        }
        (Some(_), _) => (ExperimentPhase::Recommended, "recommended"),
    }
}

fn status(
    before: ExperimentStatus,
    line: &ResultLine<'_>,
    result: ResultRef,
    job: Option<&str>,
) -> ExperimentStatus {
    let mut history: Vec<ResultRef> = before.failed.into_iter().collect();
    let (result, failed, figures) = match &line.figures {
        Some(figures) => {
            history.extend(before.result);
            (Some(result), None, Some(figures.clone()))
        }
        None => (before.result, Some(result), before.figures),
    };
    history.extend(before.history);
    history.truncate(HISTORY_MAX);
    ExperimentStatus {
        result,
        failed,
        job: job.map(str::to_owned),
        at: Some(line.at),
        figures,
        error: line.error.clone(),
        history,
        answers: before.answers,
    }
}
