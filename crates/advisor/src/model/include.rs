//! The grammar of `include` of `GET /bulk` and of the topics: which parts of a job are shown, and
//! which of their members.
//!
//! `summary|job_id|status,experiments` is the summary with two members, and all of the experiments.
//! The list of members is flat: the same names hold at every level of the part. What lies below the
//! last level (an answer, a recommendation, a notification) is shown whole.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Include {
    parts: BTreeMap<String, Members>,
}

/// The members of one part of a job that are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    All,
    Only(BTreeSet<String>),
}

impl Members {
    pub fn shows(&self, member: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(member),
        }
    }
}

impl Default for Include {
    fn default() -> Self {
        Self { parts: BTreeMap::from([("summary".to_owned(), Members::All)]) }
    }
}

impl FromStr for Include {
    type Err = std::convert::Infallible;

    /// Never fails: a name that nothing has shows nothing. A part that is named twice shows what
    /// either asks for.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts: BTreeMap<String, Members> = BTreeMap::new();
        for token in text.split(',') {
            let mut names = token.split('|').map(str::trim).filter(|name| !name.is_empty());
            let Some(part) = names.next() else { continue };
            let members: BTreeSet<String> = names.map(str::to_owned).collect();
            let members = if members.is_empty() { Members::All } else { Members::Only(members) };
            match (parts.get_mut(part), members) {
                (None, members) => drop(parts.insert(part.to_owned(), members)),
                (Some(known), Members::All) => *known = Members::All,
                (Some(Members::All), _) => {}
                (Some(Members::Only(known)), Members::Only(more)) => known.extend(more),
            }
        }
        Ok(if parts.is_empty() { Self::default() } else { Self { parts } })
    }
}

impl Include {
    /// The members of a part that are shown, or none if the part is not.
    pub fn part(&self, part: &str) -> Option<&Members> {
        self.parts.get(part)
    }

    /// What is shown of a whole job.
    pub fn filter(&self, job: Value) -> Value {
        let Value::Object(job) = job else { return job };
        let shown = job.into_iter().filter_map(|(part, value)| {
            let members = self.part(&part)?;
            let value = match part.as_str() {
                "experiments" => experiments(value, members),
                _ => keep(value, members),
            };
            Some((part, value))
        });
        Value::Object(shown.collect())
    }

    /// What is shown of one experiment. None if experiments are not.
    pub fn experiment(&self, experiment: Value) -> Option<Value> {
        self.part("experiments").map(|members| one_experiment(experiment, members))
    }
}

fn experiments(experiments: Value, members: &Members) -> Value {
    each(experiments, |experiment| one_experiment(experiment, members))
}

/// The levels of an experiment: itself, its two calls, and each call's request and response.
fn one_experiment(experiment: Value, members: &Members) -> Value {
    let mut experiment = keep(experiment, members);
    if let Some(calls) = experiment.get_mut("apis") {
        *calls = each(keep(calls.take(), members), |call| keep(call, members));
    }
    experiment
}

fn keep(value: Value, members: &Members) -> Value {
    match (value, members) {
        (Value::Object(object), Members::Only(_)) => {
            let kept = object.into_iter().filter(|(name, _)| members.shows(name));
            Value::Object(kept.collect())
        }
        (value, _) => value,
    }
}

fn each(value: Value, change: impl Fn(Value) -> Value) -> Value {
    match value {
        Value::Object(object) => {
            let changed = object.into_iter().map(|(name, value)| (name, change(value)));
            Value::Object(changed.collect::<Map<_, _>>())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job() -> Value {
        json!({
            "summary": { "status": "COMPLETED", "job_id": "7", "input": { "datasource": "p" } },
            "experiments": { "a|b": {
                "name": "a|b",
                "status": "PROCESSED",
                "apis": {
                    "create": { "response": { "status": "SUCCESS", "httpcode": 201 }, "request": { "mode": "monitor" } },
                    "recommendations": { "response": [{ "version": "v2.0" }] },
                },
                "status_history": [{ "status": "UNPROCESSED", "timestamp": "t" }],
            } },
            "webhook": { "status": "COMPLETED" },
            "metadata": { "datasources": {} },
        })
    }

    fn shown(include: &str) -> Value {
        include.parse::<Include>().unwrap().filter(job())
    }

    #[test]
    fn the_summary_is_shown_if_nothing_is_asked_for() {
        for blank in ["", " ", ",", "|"] {
            assert_eq!(blank.parse(), Ok(Include::default()));
        }
        assert_eq!(shown(""), json!({ "summary": job()["summary"] }));
    }

    #[test]
    fn parts_are_shown_whole_in_the_order_of_the_job() {
        let all = shown("metadata, webhook,experiments,summary");
        assert_eq!(all, job());
        let parts: Vec<&String> = all.as_object().unwrap().keys().collect();
        assert_eq!(parts, ["summary", "experiments", "webhook", "metadata"]);
    }

    #[test]
    fn members_are_flat_and_what_lies_below_them_is_whole() {
        assert_eq!(
            shown(
                "summary|job_id|status,experiments|name|status|apis|recommendations|response|status_history"
            ),
            json!({
                "summary": { "status": "COMPLETED", "job_id": "7" },
                "experiments": { "a|b": {
                    "name": "a|b",
                    "status": "PROCESSED",
                    "apis": { "recommendations": { "response": [{ "version": "v2.0" }] } },
                    "status_history": [{ "status": "UNPROCESSED", "timestamp": "t" }],
                } },
            })
        );
        let create = shown("experiments|apis|create|response");
        let created = json!({ "create": { "response": { "status": "SUCCESS", "httpcode": 201 } } });
        assert_eq!(create["experiments"]["a|b"]["apis"], created);
    }

    #[test]
    fn unknown_names_show_nothing() {
        assert_eq!(shown("foo"), json!({}));
        assert_eq!(shown("summary|foo"), json!({ "summary": {} }));
        assert_eq!(shown("Summary"), json!({}));
    }

    #[test]
    fn a_part_that_is_named_twice_shows_what_either_asks_for() {
        assert_eq!(shown("summary|status,summary|job_id"), shown("summary|job_id|status"));
        assert_eq!(shown("summary|status,summary"), shown("summary"));
        assert_eq!(shown("summary,summary|status"), shown("summary"));
    }
}
