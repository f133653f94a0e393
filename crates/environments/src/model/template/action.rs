//! Actions: something that is run for an environment, on demand or after a phase.

use kernel::labels;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::fields::{Fields, items, one_of, text};
use crate::model::label::stored_as_label;
use crate::model::period::Period;
use crate::model::problem::Problems;

labels! {
    /// When an action is run.
    pub enum When {
        OnDemand = "on-demand",
        AfterOk = "after-ok",
        AfterFail = "after-fail",
        AfterStopped = "after-stopped",
        BeforeDestroying = "before-destroying",
    }
}
stored_as_label!(When);

/// A reference to an application: where it is, and what is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    pub when: When,
    pub timeout: Period,
}

const TIMEOUT: Period = Period::seconds(600);

impl Action {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Action> {
        let mut fields = Fields::new(path, value, problems)?;
        let action = Action {
            url: fields.read("url", text),
            command: fields.read("command", command).unwrap_or_default(),
            when: fields.read("when", one_of(&When::ALL)).unwrap_or(When::OnDemand),
            timeout: fields.read("timeout", Period::read).unwrap_or(TIMEOUT),
        };
        if action.url.is_none() && action.command.is_empty() {
            fields.problem("", "does nothing", "give it a `command`, a `url`, or both");
        }
        fields.finish();
        Some(action)
    }
}

/// A list of a program and its arguments: no shell splits a text at the wrong place.
fn command(path: &str, value: Value, problems: &mut Problems) -> Option<Vec<String>> {
    if value.is_string() {
        let right = "write the program and each argument as items of a list";
        problems.add(path, "is one text", right);
        return None;
    }
    Some(items(path, value, problems, text))
}
