//! Explains why a stream is in its state and how to change that. Pure: facts go in, sentences come
//! out, the most important first.

mod operator;
mod progress;
mod requested;

use jiff::Timestamp;
use kubernetes::Lease;

use crate::model::NamespacedName;
use crate::model::backfill_request::BackfillRequest;
use crate::model::class::Class;
use crate::model::job::{CronJob, Job};
use crate::model::stream::Stream;

/// Everything that can be read about a stream.
#[derive(Debug)]
pub struct StreamFacts {
    pub now: Timestamp,
    pub stream: Stream,
    pub class: Class,
    /// Whether a StreamClass names its kind.
    pub has_class: bool,
    /// The field that suspends it; none if it is not suspended.
    pub suspended: Option<&'static str>,
    /// The downtime that it is part of, and the start of that.
    pub downtime: Option<(String, Option<String>)>,
    pub job: Option<Job>,
    pub cron_job: Option<CronJob>,
    /// Pods of its Job that make no progress, and why.
    pub stuck_pods: Vec<(String, String)>,
    /// Its requests, open and completed.
    pub requests: Vec<BackfillRequest>,
    /// The templates that it names, and what is wrong with each.
    pub templates: Vec<(NamespacedName, Option<String>)>,
    pub operator: OperatorState,
    /// Newest first.
    pub events: Vec<Event>,
}

/// What is known about the operator.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum OperatorState {
    /// Leases are not readable (RBAC).
    #[default]
    Unknown,
    /// There is no Lease of an operator.
    None,
    Lease(NamespacedName, Lease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    pub by: String,
}

/// One reason for the state of a stream.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reason {
    /// A stable code for scripts.
    pub code: &'static str,
    /// One or two sentences.
    #[serde(rename = "says")]
    pub message: String,
    /// What would change it; empty if nothing needs to.
    #[serde(rename = "change", skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

impl Reason {
    fn new(code: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Reason {
        Reason { code, message: message.into(), fix: fix.into() }
    }
}

/// The reasons, the most important first. Never empty.
pub fn explain(facts: &StreamFacts) -> Vec<Reason> {
    let operator =
        [operator::deleting, operator::unclassed, operator::operator, operator::class_state];
    let requested =
        [requested::paused, requested::spec_error, requested::suspended, requested::no_backend];
    let blocking = [progress::foreign_job, progress::ending, progress::failed];
    let running = [progress::backfill, progress::stuck, progress::schedule];
    let collect = |parts: &[fn(&StreamFacts) -> Option<Reason>]| -> Vec<Reason> {
        parts.iter().filter_map(|part| part(facts)).collect()
    };
    let mut reasons = collect(&operator);
    reasons.extend(collect(&requested));
    let stopped = facts.suspended.is_some() || facts.downtime.is_some();
    if facts.stream.execution.is_ok() && !stopped {
        reasons.extend(collect(&blocking));
        let templates = progress::templates(facts);
        // The operator's error repeats the same in fewer words.
        if templates.is_empty() {
            reasons.extend(progress::operator_error(facts))
        } else {
            reasons.extend(templates)
        }
        reasons.extend(collect(&running));
    }
    reasons.extend(collect(&[progress::running, operator::other_operator]));
    if reasons.is_empty() {
        reasons.push(progress::nothing_known(facts));
    }
    reasons
}

fn cli_ref(facts: &StreamFacts) -> String {
    let object_name = facts.stream.object_name();
    format!("{}/{} -n {}", facts.class.kind, object_name.name, object_name.namespace)
}

fn since(facts: &StreamFacts, at: Timestamp) -> String {
    format!("since {} ({})", brief(at), distance(facts.now, at))
}

fn brief(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Formats a time as in `5 min ago` and `in 2 h`.
fn distance(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.as_second() - at.as_second();
    let long = match seconds.abs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    };
    if seconds < 0 { format!("in {long}") } else { format!("{long} ago") }
}

#[cfg(test)]
mod tests;
