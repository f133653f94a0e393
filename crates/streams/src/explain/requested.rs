//! What the stream itself requests: to be paused or suspended, or something impossible.

use super::{Reason, StreamFacts, cli_ref};
use crate::model::{DOWNTIME, DOWNTIME_BEGIN, PAUSE, STATE};

pub(super) fn paused(facts: &StreamFacts) -> Option<Reason> {
    let object_name = facts.stream.object_name();
    facts.stream.annotations.paused.then(|| {
        Reason::new(
            "paused",
            format!(
                "The annotation {PAUSE} is true: the operator changes neither it nor its Job nor its status."
            ),
            format!(
                "kubectl annotate {} {} -n {} {PAUSE}-",
                facts.class.plural, object_name.name, object_name.namespace
            ),
        )
    })
}

pub(super) fn spec_error(facts: &StreamFacts) -> Option<Reason> {
    let problem = facts.stream.execution.as_ref().err()?;
    Some(Reason::new(
        "spec-error",
        format!("Its spec cannot be carried out: {problem}."),
        format!("Correct {}.", problem.field),
    ))
}

pub(super) fn suspended(facts: &StreamFacts) -> Option<Reason> {
    let still = match &facts.job {
        Some(_) => " Its Job is still ending.",
        None => "",
    };
    if let Some((key, begun)) = &facts.downtime {
        let begun = begun.as_deref().map(|at| format!(" since {at}")).unwrap_or_default();
        return Some(Reason::new(
            "downtime",
            format!("It is part of the downtime {key}{begun}, so it is suspended.{still}"),
            format!(
                "`mainstay stream downtime stop {key}` ends the downtime for all of it; for this \
                 one alone, remove the label {DOWNTIME} and the annotation {DOWNTIME_BEGIN} and \
                 start it."
            ),
        ));
    }
    let field = facts.suspended?;
    let open = facts.requests.iter().filter(|request| !request.completed).count();
    let waiting = match open {
        0 => String::new(),
        1 => " An open backfill request waits until it is resumed.".into(),
        n => format!(" {n} open backfill requests wait until it is resumed."),
    };
    let message = if field.contains(STATE) {
        format!("It is suspended: {field} requests it.{still}{waiting}")
    } else {
        format!("It is suspended: {field} is true.{still}{waiting}")
    };
    Some(Reason::new("suspended", message, format!("`mainstay stream start {}`", cli_ref(facts))))
}

pub(super) fn no_backend(facts: &StreamFacts) -> Option<Reason> {
    let execution = facts.stream.execution.as_ref().ok()?;
    execution.backend.is_none().then(|| {
        Reason::new(
            "no-backend",
            "It has no backend, so there is nothing to run.",
            "Give spec.execution.streamingBackend either changeCapture with a jobTemplateRef, or \
             batch with a schedule and a jobTemplateRef.",
        )
    })
}
