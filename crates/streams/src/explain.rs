//! Why a stream is as it is, in words, and what would change it. Pure: everything that can be read
//! goes in, sentences come out, the one that matters most first.

mod way;
mod who;
mod wish;

use jiff::Timestamp;

use crate::cluster::Lease;
use crate::model::Place;
use crate::model::class::Class;
use crate::model::job::{Cron, Job};
use crate::model::request::Request;
use crate::model::stream::Stream;

/// Everything that can be read of a stream.
#[derive(Debug)]
pub struct Seen {
    pub now: Timestamp,
    pub stream: Stream,
    pub class: Class,
    /// Whether a StreamClass names its kind.
    pub classed: bool,
    /// Where it says that it is suspended, and whether it does.
    pub suspended: Option<&'static str>,
    /// The downtime that it is part of, and when that began.
    pub downtime: Option<(String, Option<String>)>,
    pub job: Option<Job>,
    pub cron: Option<Cron>,
    /// Pods of its Job that are not getting ahead, and why.
    pub stuck_pods: Vec<(String, String)>,
    /// Of this stream, open or not.
    pub requests: Vec<Request>,
    /// The templates that it names, and what is wrong with each, if anything is.
    pub templates: Vec<(Place, Option<String>)>,
    pub operator: Operator,
    /// Newest first.
    pub events: Vec<Event>,
}

/// What is known of who acts.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Operator {
    /// It was not allowed to look.
    #[default]
    Unknown,
    /// No Lease of it is anywhere.
    None,
    Lease(Place, Lease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    pub by: String,
}

/// One thing to say.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reason {
    /// For scripts; does not change.
    pub code: &'static str,
    /// A sentence or two.
    pub says: String,
    /// What would change it; empty if nothing needs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub change: String,
}

impl Reason {
    fn new(code: &'static str, says: impl Into<String>, change: impl Into<String>) -> Reason {
        Reason { code, says: says.into(), change: change.into() }
    }
}

/// The one that matters most first. Never empty.
pub fn explain(seen: &Seen) -> Vec<Reason> {
    let who = [who::deleting, who::unclassed, who::operator, who::class_state];
    let wish = [wish::paused, wish::spec_error, wish::suspended, wish::no_backend];
    let way = [way::foreign_job, way::ending, way::failed];
    let run = [way::backfill, way::stuck, way::schedule];
    let say = |parts: &[fn(&Seen) -> Option<Reason>]| -> Vec<Reason> {
        parts.iter().filter_map(|part| part(seen)).collect()
    };
    let mut reasons = say(&who);
    reasons.extend(say(&wish));
    let stopped = seen.suspended.is_some() || seen.downtime.is_some();
    if seen.stream.execution.is_ok() && !stopped {
        reasons.extend(say(&way));
        let templates = way::templates(seen);
        // The operator says the same of them, in fewer words.
        match templates.is_empty() {
            true => reasons.extend(way::trouble(seen)),
            false => reasons.extend(templates),
        }
        reasons.extend(say(&run));
    }
    reasons.extend(say(&[way::running, who::other_operator]));
    if reasons.is_empty() {
        reasons.push(way::nothing_known(seen));
    }
    reasons
}

fn me(seen: &Seen) -> String {
    let place = seen.stream.place();
    format!("{}/{} -n {}", seen.class.kind, place.name, place.namespace)
}

fn since(seen: &Seen, at: Timestamp) -> String {
    format!("since {} ({})", brief(at), distance(seen.now, at))
}

fn brief(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// As in `5 min ago` and `in 2 h`.
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
