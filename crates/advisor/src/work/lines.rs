//! The lines of results: what came out for each experiment, as it is kept and published.

use kernel::{Error, Result, Timestamp};
use serde_json::value::{RawValue, to_raw_value};

use super::shard::Outcome;
use crate::decide::material::figures;
use crate::model::experiment::Experiment;
use crate::model::inventory::{CLUSTER, Member};
use crate::model::job::ResultLine;
use crate::model::wire::{Element, Subject};

/// The lines of the members of a shard, in the order of the outcomes.
pub fn of_members(
    members: &[Member],
    names: &[String],
    mut known: Vec<(usize, Option<Experiment>)>,
    outcomes: Vec<Outcome>,
    datasource: &str,
    at: Timestamp,
) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    for (index, outcome) in outcomes {
        let (member, name) = (&members[index], &names[index]);
        let before = known[index].1.take();
        let existing = before.is_some();
        let made = Experiment::of_member(name, datasource, CLUSTER, member);
        // Its settings are its maker's; what it is about is as it was found now.
        let experiment = match before {
            Some(before) => Experiment { objects: made.objects, ..before },
            None => made,
        };
        let (recommendation, figures, error) = match &outcome {
            Ok(recommendation) => {
                let element = Element {
                    cluster: &experiment.cluster,
                    experiment: name,
                    subject: Subject::of(member),
                    recommendation: Some(recommendation),
                };
                (Some(raw(&element)?), Some(figures(recommendation)), None)
            }
            Err(error) => (None, None, Some(error.clone())),
        };
        let line = ResultLine {
            experiment,
            existing,
            member: Some(member.clone()),
            at,
            recommendation: recommendation.as_deref(),
            figures,
            error,
        };
        append(&mut data, &line)?;
    }
    Ok(data)
}

/// Adds a line.
pub fn append(data: &mut Vec<u8>, line: &ResultLine<'_>) -> Result<()> {
    serde_json::to_writer(&mut *data, line).map_err(encoding)?;
    data.push(b'\n');
    Ok(())
}

/// The JSON of an element of `listRecommendations`.
pub fn raw(element: &Element<'_>) -> Result<Box<RawValue>> {
    to_raw_value(element).map_err(encoding)
}

fn encoding(error: serde_json::Error) -> Error {
    Error::internal("encoding a result", error)
}
